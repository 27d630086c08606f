"""The projection by a store's stream: the outbox has every change that the stream missed."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import pytest

from idgraph.model.errors import StoreError
from idgraph.model.queries import Query
from idgraph.model.store import OutboxEntry
from idgraph.projection.projection import Projection
from idgraph.projection.stream_following import FollowProgress, StreamFollowing
from tests.support.indexed_stores import allowing, write
from tests.support.memory.index import MemoryProfileIndex
from tests.support.memory.profiles import MemoryProfileStore


@dataclass
class Changes:
    """A `ChangeStream` of these ids, two at a time."""

    ids: list[str] = field(default_factory=list)
    name: str = "stream"
    shards: int = 1
    failures: int = 0

    def changed(self) -> list[str]:
        if self.failures:
            self.failures -= 1
            raise StoreError("away")
        page, self.ids = self.ids[:2], self.ids[2:]
        return page

    def close(self) -> None:
        """Nothing is open."""


def follow(
    store: MemoryProfileStore, stream: Changes, index: MemoryProfileIndex, looks: int
) -> FollowProgress:
    """So many looks at it."""
    projection = Projection(store, index, lambda: allowing("x").rules)
    work = StreamFollowing(projection, stream, poll_seconds=0.0)
    steps = work.run(threading.Event())
    return [next(steps) for _ in range(looks)][-1]


def written(store: MemoryProfileStore, number: int) -> list[str]:
    """The ids of so many writes."""
    ids = [f"p:{each % 3}" for each in range(number)]
    for each, name in enumerate(ids):
        write(store, name, each)
    return ids


def test_a_store_that_is_away_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idgraph.projection.stream_following.RETRY_SECONDS", 0.001)
    store, index = MemoryProfileStore(), MemoryProfileIndex()
    progress = follow(store, Changes(written(store, 5), failures=2), index, 4)
    assert progress.reported == 5
    assert index.count(Query()) == 3
    assert store.outbox() == []


def test_the_outbox_is_drained_though_something_comes_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    store, index = MemoryProfileStore(), MemoryProfileIndex()
    stream = Changes(written(store, 20))
    write(store, "dropped:1", 1)
    follow(store, stream, index, 3)
    assert "dropped:1" in index.versions(["dropped:1"])
    # Flows that fill it as fast as it is drained do not hold up the stream.
    monkeypatch.setattr("idgraph.projection.stream_following.SWEEP_SECONDS", 0.0)
    monkeypatch.setattr("idgraph.projection.stream_following.LONGEST_SWEEP_SECONDS", 0.0)
    settle, filled = store.settle, count()

    def filling(entries: Sequence[OutboxEntry]) -> None:
        settle(entries)
        if (number := next(filled)) < 100:
            write(store, "filling:1", number)

    monkeypatch.setattr(store, "settle", filling)
    assert follow(store, stream, index, 3).reported == 6
    assert next(filled) < 10
