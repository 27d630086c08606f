"""A micro-batch that the guard refused was committed; its second run, under a repaired snapshot, makes it whole.

See docs/adr/0010-judging-after-the-commit.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.events import RawRecord
from idgraph.model.snapshots import MetadataSnapshot
from tests.retail import Pipeline, order, records, snapshot, spec


def under(version: int, **segment: Any) -> MetadataSnapshot:
    """A snapshot in which the spec for segment is of this version, and as it is changed."""
    changed = spec("segment", version=version, **segment)
    return snapshot(version, specs=[changed, spec("amplitude"), spec("orders")])


def refused_then_mended(
    folder: Path, given: list[RawRecord], first: MetadataSnapshot, repaired: MetadataSnapshot
) -> tuple[Pipeline, Pipeline]:
    """What a store holds after both runs, and one that knew the repaired snapshot from the start."""
    refused = Pipeline(folder, snapshot=first)
    refused.process(given)
    refused.snapshot = repaired
    refused.process(given)
    straight = Pipeline(folder, refused.key_store, snapshot=repaired)
    straight.process(given)
    return refused, straight


def test_a_spec_that_is_mended_for_the_failing_events_leaves_no_trace_of_the_first_run(
    tmp_path: Path,
) -> None:
    given = records(400)
    first, repaired = under(1, event_type="track"), under(2)
    reasons = [
        dead_letter.reason for dead_letter in Pipeline(tmp_path, snapshot=first).map(*given).dead_letters
    ]
    assert len(reasons) > 20
    assert set(reasons) == {DeadLetterReason.NO_SPEC}
    assert Pipeline(tmp_path, snapshot=repaired).map(*given).dead_letters == []

    refused, straight = refused_then_mended(tmp_path, given, first, repaired)

    for reveal in (False, True):
        assert refused.export(reveal) == straight.export(reveal)
    assert b'"spec":"shop-segment","spec_version":2' in refused.export()
    assert b'"spec":"shop-segment","spec_version":1' not in refused.export()


def orders_under(version: int, **paths: str) -> MetadataSnapshot:
    """A snapshot in which the spec for orders is of this version and sets these paths besides its own."""
    operations: Any = spec("orders").operations
    (chain,) = operations
    changed = spec("orders", version=version, operations=[{**chain, "spec": {**chain["spec"], **paths}}])
    return snapshot(version, specs=[spec("segment"), spec("amplitude"), changed])


def values(pipeline: Pipeline, path: str) -> list[tuple[Any, int]]:
    """The values of an attribute with the versions of the specs that made them."""
    return [
        (leaf.value, leaf.register.spec.version)
        for profile in pipeline.reader().scan()
        for leaf in profile.leaves
        if leaf.path == path
    ]


def test_what_only_the_older_version_made_stays_and_says_so(tmp_path: Path) -> None:
    first, repaired = orders_under(1, note="guest"), orders_under(2)
    refused, straight = refused_then_mended(tmp_path, [order()], first, repaired)
    assert values(refused, "note") == [(False, 1)]
    assert values(straight, "note") == []
    assert values(refused, "orders.last.id") == values(straight, "orders.last.id") == [("R1", 2)]


def test_of_a_version_that_was_taken_back_the_values_of_the_refused_batch_stay(tmp_path: Path) -> None:
    first, earlier = orders_under(2, note="'new'"), orders_under(1, note="'old'")
    refused, straight = refused_then_mended(tmp_path, [order()], first, earlier)
    assert values(refused, "note") == [("new", 2)]
    assert values(straight, "note") == [("old", 1)]


@pytest.mark.parametrize("again", [1, 2, 3])
def test_the_number_of_runs_does_not_show(again: int, tmp_path: Path) -> None:
    given = records(100)
    once, straight = refused_then_mended(tmp_path, given, under(1, event_type="track"), under(2))
    for number in range(again):
        once.snapshot = under(1, event_type="track") if number % 2 else under(2)
        once.process(given)
    once.snapshot = under(2)
    assert once.export() == straight.export()
