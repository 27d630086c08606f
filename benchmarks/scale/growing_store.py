"""Filling store, index and data keys with any number of the retail example's fragments, through the real commit and
projection.

One shop's events are mapped and merged once; the fragments of further shops are the bytes of the first with other
numbers in the ids of persons, devices and events. Nothing can open their sealed values, and nothing here tries to.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Any

from benchmarks.pipeline import Pipeline, wire
from benchmarks.workload import SOURCES, events, renamed
from idgraph.model.events import RawRecord
from idgraph.model.tombstones import NO_EPOCH
from merge import codec
from merge.fragments import FragmentState

FIRST_SHOP = 1_000_000
_MARKER = 7_654_321
"""The shop that is mapped: nothing else in the data looks like its number."""

_HASHED_NAME = re.compile(rb"~([A-Za-z0-9_-]{15})[A-Za-z0-9_-]{7}")
AT_ONCE = 20_000


def records(source: str, given: list[dict[str, Any]], shop: int) -> Iterator[RawRecord]:
    """Events of a source as they are read from files."""
    for number, event in enumerate(given):
        line = renamed(source, event, shop).rstrip(b"\n")
        yield RawRecord(source, f"file:{source}/{shop}.jsonl#{number}", line)


class GrowingStore:
    """Grows by whole fragments; those of a shop come together."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        outputs = [
            output for source in SOURCES for output in pipeline.map(records(source, events(source), _MARKER))
        ]
        merged: dict[str, bytes] = {}
        for fragment_id, data, _ in wire(outputs):
            known = merged.get(fragment_id)
            merged[fragment_id] = data if known is None else _joined(known, data)
        self._template = sorted(merged.items())
        self._sealed = {name for name, data in merged.items() if b',2,"' in data}
        self._fragments = self._endless()
        self.count = 0

    @property
    def shops(self) -> range:
        """The numbers of the shops that are there, the last perhaps in part."""
        return range(FIRST_SHOP, FIRST_SHOP + max(1, self.count // len(self._template)))

    def grow(self, count: int) -> None:
        """Add fragments until there are so many."""
        while self.count < count:
            some = list(islice(self._fragments, min(AT_ONCE, count - self.count)))
            sealed = [name for name, _, is_sealed in some if is_sealed]
            self._pipeline.tools.data_keys.fetch(sealed, create=True)
            done = self._pipeline.commit([(name, data, NO_EPOCH) for name, data, _ in some])
            if done.written != len(some):
                raise RuntimeError(f"{len(some) - done.written} of {len(some)} fragments were not written")
            self._pipeline.project()
            self.count += len(some)

    def _endless(self) -> Iterator[tuple[str, bytes, bool]]:
        shop = FIRST_SHOP
        while True:
            for name, data in self._template:
                body = _of_shop(codec.body(data), shop)
                renamed_id = _of_shop(name.encode(), shop).decode()
                yield renamed_id, codec.framed(body, data[:1]), name in self._sealed
            shop += 1


def _joined(one: bytes, other: bytes) -> bytes:
    state = FragmentState.decode(one)
    state.join(FragmentState.decode(other))
    state.normalise()
    return state.encode()


def _of_shop(data: bytes, shop: int) -> bytes:
    # The same length, so that the order stays.
    number = b"%d" % shop
    return _HASHED_NAME.sub(rb"~\g<1>" + number, data).replace(b"%d" % _MARKER, number)
