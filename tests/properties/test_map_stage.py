"""Law 1 for the stages: whatever the order, the duplication and the chunks, the same export, byte for byte."""

from __future__ import annotations

import tempfile
from functools import cache
from itertools import pairwise
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model.events import RawRecord
from idgraph.model.sources import FlowConfig
from tests.folders import in_memory
from tests.lanes import examples
from tests.retail import Pipeline, order, raw, records
from tests.support.memory.data_keys import MemoryDataKeys

BAD = [raw(b"{", 90), order(1, 91, order_id=None), raw({"event_type": "View", "time": 1}, 92, "amplitude")]
EVENTS = [*records(40), *BAD]


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """One keyring and one set of data keys for all runs: other keys seal to other bytes."""
    return in_memory()


KEYS = MemoryDataKeys()


def exported(batches: list[list[RawRecord]], combine: int) -> tuple[bytes, dict[str, bytes]]:
    """What is exported, and stored, after each batch went through both stages."""
    flow = FlowConfig(combine_events=combine)
    pipeline = Pipeline(Path(folder().name), KEYS, flow=flow)
    for batch in batches:
        pipeline.process(batch)
    stored = {fragment.id: fragment.state for fragment in pipeline.store.scan(limit=10_000)}
    return pipeline.export() + b"\n" + pipeline.export(reveal=True), stored


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[RawRecord], list[list[RawRecord]]]:
    """A set of events, and one way in which they may arrive."""
    chosen = draw(st.lists(st.integers(0, len(EVENTS) - 1), unique=True, min_size=1, max_size=len(EVENTS)))
    again = draw(st.lists(st.sampled_from(chosen), max_size=15))
    arrival = draw(st.permutations([*chosen, *again]))
    cuts = sorted(draw(st.lists(st.integers(0, len(arrival)), max_size=4)))
    edges = [0, *cuts, len(arrival)]
    batches = [[EVENTS[place] for place in arrival[a:b]] for a, b in pairwise(edges)]
    return [EVENTS[place] for place in sorted(chosen)], batches


@settings(max_examples=examples(40), deadline=None)
@given(histories(), st.integers(1, 50))
def test_order_duplication_batches_and_chunks_do_not_show(
    history: tuple[list[RawRecord], list[list[RawRecord]]], combine: int
) -> None:
    events, batches = history
    assert exported(batches, combine) == exported([events], len(events))


def test_every_event_twice_and_backwards() -> None:
    assert exported([EVENTS[::-1], EVENTS], 1) == exported([EVENTS], 1000)
