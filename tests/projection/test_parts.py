"""Sweeps that leave their parts to tasks, and passes through a store."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from random import Random

import pytest

from idgraph.model.errors import StoreError
from idgraph.model.index import IndexDocument, IndexRules
from idgraph.model.queries import Query
from idgraph.projection.parts import Pass
from idgraph.projection.projection import Projection
from tests.projecting import Shuffled
from tests.support.indexed_stores import write
from tests.support.memory.index import MemoryProfileIndex
from tests.support.memory.profiles import MemoryProfileStore

EVERYTHING = IndexRules(lambda _path: True)


class _Index(MemoryProfileIndex):
    """Refuses some ids, and counts what it is given."""

    refused: frozenset[str] = frozenset()
    given = 0

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        self.given += len(documents)
        refused = {each.id: "no" for each in documents if each.id in self.refused}
        return refused | super().put([each for each in documents if each.id not in refused])


def in_tasks(store: MemoryProfileStore, index: MemoryProfileIndex) -> Projection:
    def projection(tasks: Shuffled | None = None) -> Projection:
        return Projection(store, index, lambda: EVERYTHING, tasks=tasks)

    return projection(Shuffled(store, projection, Random(7)))


def test_what_is_refused_waits_for_its_retry_and_holds_up_nothing() -> None:
    store, index = MemoryProfileStore(), _Index()
    index.refused = frozenset(f"p:{number}" for number in range(0, 20, 3))
    for number in range(20):
        write(store, f"p:{number}", number)
    projection = in_tasks(store, index)
    swept = projection.sweep()
    assert (frozenset(swept.refused), swept.postponed) == (index.refused, 0)
    assert {each.fragment_id for each in store.outbox()} == index.refused
    given = index.given
    write(store, "p:1", 1)
    swept = projection.sweep()
    # A repeated part counts again.
    assert swept.projected >= 1
    assert (swept.refused, swept.postponed >= 7) == ({}, True)
    assert index.given <= given + 2, "those that were refused are not put again"
    # What was written since does not wait.
    index.refused = frozenset()
    write(store, "p:0", 1)
    assert projection.sweep().postponed >= 6
    assert index.count(Query()) == 14


def test_a_pass_goes_on_where_an_outage_stopped_it() -> None:
    seen: list[str] = []
    outages = [3, 5]

    def ids() -> Iterator[str]:
        for number in range(8):
            if number in outages:
                outages.remove(number)
                raise StoreError("away")
            yield str(number)

    looked = Pass(ids, seen.extend, lambda: 2)
    for _ in range(2):
        with pytest.raises(StoreError):
            looked.has_ended(math.inf)
    assert not looked.has_ended(-math.inf)
    assert looked.has_ended(math.inf)
    assert seen == [str(number) for number in range(8)]
