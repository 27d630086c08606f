"""Which shards are read, and when: with shards that split and end as DynamoDB Local's do not."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model.errors import StoreError
from idgraph.model.queries import Query
from idgraph.model.store import OutboxEntry, Shard, ShardPage
from idgraph.projection.projection import Projection
from idgraph.projection.stream_following import StreamFollowing, StreamPlaces, readable
from tests.ingestion.indexed_stores import allowing, write
from tests.support.memory.index import MemoryProfileIndex
from tests.support.memory.profiles import MemoryProfileStore


@dataclass
class Shards:
    """A `ChangeStream` of what was written to a store, in shards as they are given: parent by name, how many writes
    each has, all of which have ended."""

    store: MemoryProfileStore
    tree: Mapping[str, tuple[str | None, int]]
    name: str = "stream"
    reported: dict[str, list[str]] = field(default_factory=dict)
    read_in: list[str] = field(default_factory=list)
    failures: int = 0
    lists: int = 0

    def write_all(self) -> None:
        """Parents before children, a fragment in each shard on the way of its descent."""
        for shard, (_, writes) in self.tree.items():
            reported = self.reported.setdefault(shard, [])
            for number in range(writes):
                name = f"p:{number % 3}"
                write(self.store, name, f"{shard}-{number}")
                reported.append(name)

    def shards(self) -> Mapping[str, Shard]:
        self.lists += 1
        return {name: Shard(parent) for name, (parent, _) in self.tree.items()}

    def read(self, shard: str, after: str | None) -> ShardPage:
        if self.failures:
            self.failures -= 1
            raise StoreError("away")
        self.read_in.append(shard)
        start = 0 if after is None else int(after)
        page = self.reported[shard][start : start + 2]
        end = start + len(page)
        return ShardPage(page, str(end) if page else None, end == len(self.reported[shard]))

    def close(self) -> None:
        """Nothing is open."""


@st.composite
def trees(draw: st.DrawFn) -> dict[str, tuple[str | None, int]]:
    """Shards that descend from one another; a parent may be gone."""
    tree: dict[str, tuple[str | None, int]] = {}
    for number in range(draw(st.integers(1, 7))):
        parent = draw(st.sampled_from([None, "gone", *tree]))
        tree[f"shard{number}"] = (parent, draw(st.integers(0, 5)))
    return tree


def follow(stream: Shards, index: MemoryProfileIndex, file: Path, looks: int) -> StreamFollowing:
    """So many looks at it."""
    policy = allowing("x")
    projection = Projection(stream.store, index, lambda: policy.rules)
    work = StreamFollowing(projection, stream, StreamPlaces(file), poll_seconds=0.0)
    stop = threading.Event()
    for number, _ in enumerate(work.run(stop), 1):
        if number == looks:
            stop.set()
    return work


@settings(max_examples=25)
@given(trees(), st.integers(1, 4))
def test_a_child_is_read_when_its_parent_is_at_its_end_and_all_come_to_their_end(
    tree: dict[str, tuple[str | None, int]], looks: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        store, index = MemoryProfileStore(), MemoryProfileIndex()
        stream = Shards(store, tree)
        stream.write_all()
        file = Path(folder) / "places.json"
        rounds = 0
        while True:
            # Each time from what is on disk, as after a crash.
            ended = follow(stream, index, file, looks).places.ended
            rounds += 1
            assert rounds < 100
            if ended == tree.keys():
                break
        firsts = {name: stream.read_in.index(name) for name in tree}
        for name, (parent, _) in tree.items():
            if parent in tree:
                last = len(stream.read_in) - 1 - stream.read_in[::-1].index(parent)
                assert last < firsts[name]
        assert store.outbox() == []
        ids = [each.id for each in store.scan()]
        assert index.versions(ids) == {each.id: each.version for each in store.scan()}


@given(trees(), st.sets(st.integers(0, 6)))
def test_some_shard_can_be_read_until_all_have_ended(
    tree: dict[str, tuple[str | None, int]], numbers: set[int]
) -> None:
    ended = {f"shard{number}" for number in numbers} & tree.keys()
    shards = {name: Shard(parent) for name, (parent, _) in tree.items()}
    assert bool(readable(shards, ended)) is (ended != tree.keys())


def test_a_store_that_is_away_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("idgraph.projection.stream_following.RETRY_SECONDS", 0.001)
    store, index = MemoryProfileStore(), MemoryProfileIndex()
    stream = Shards(store, {"shard0": (None, 5)}, failures=2)
    stream.write_all()
    follow(stream, index, tmp_path / "places.json", 4)
    assert index.count(Query()) == 3
    assert store.outbox() == []


def test_the_outbox_is_drained_though_something_comes_all_the_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, index = MemoryProfileStore(), MemoryProfileIndex()
    stream = Shards(store, {"shard0": (None, 20)})
    stream.write_all()
    write(store, "dropped:1", 1)
    follow(stream, index, tmp_path / "places.json", 3)
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
    work = follow(stream, index, tmp_path / "places.json", 3)
    assert work.places.after == {"shard0": "12"}
    assert next(filled) < 10


def test_the_list_of_shards_is_asked_for_again_when_one_has_ended_or_after_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, index = MemoryProfileStore(), MemoryProfileIndex()
    stream = Shards(store, {"short": (None, 2), "long": (None, 40), "child": ("short", 1)})
    stream.write_all()
    follow(stream, index, tmp_path / "places.json", 6)
    # At the start, after the end of the first and after that of its child.
    assert stream.lists == 3
    monkeypatch.setattr("idgraph.projection.stream_following.SHARDS_SECONDS", 0.0)
    follow(stream, index, tmp_path / "places.json", 6)
    assert stream.lists == 9


def test_places_of_another_stream_are_of_no_use(tmp_path: Path) -> None:
    file = tmp_path / "places.json"
    store, index = MemoryProfileStore(), MemoryProfileIndex()
    first = Shards(store, {"shard0": (None, 4)})
    first.write_all()
    assert follow(first, index, file, 3).places.ended == {"shard0"}
    second = Shards(store, {"shard0": (None, 4)}, name="other")
    second.write_all()
    follow(second, index, file, 3)
    assert second.read_in
    assert store.outbox() == []
    file.write_bytes(b'{"stream": "other", "after": 7}')
    assert follow(second, index, file, 3).places.ended == {"shard0"}
