"""Optimistic locking: retries within bounds, the others written, nothing written for nothing."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from idgraph.model.backoff import Backoff
from idgraph.model.errors import ConflictError, StoreError
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.stamps import SpecRef, Stamp
from idgraph.model.store import FragmentWrite, StoredFragment
from idgraph.model.tombstones import Tombstone
from merge.commit import Committer
from merge.fragments import FragmentState
from tests.support.memory.profiles import MemoryProfileStore


def state(ordinal: int, name: str = "user_id:1", path: str = "a") -> FragmentState:
    made = FragmentState()
    origin = Origin(Stamp(0, ordinal, "shop", f"e{ordinal}"), SpecRef("s", 1))
    mutations = {path: Register(origin, Kind.PLAIN, ordinal)}
    made.apply(FragmentChange(name, origin, mutations, (Identifier.parse(name),)))
    made.normalise()
    return made


def value(store: MemoryProfileStore, name: str = "user_id:1", path: str = "a") -> object:
    return FragmentState.decode(store.read([name])[name].state).registers[path].value


class _Racing(MemoryProfileStore):
    """Before each write somebody else may write."""

    def __init__(self, race: Callable[[_Racing, int], None]) -> None:
        super().__init__()
        self._race = race
        self.reads: list[list[str]] = []
        self.writes: list[list[str]] = []

    def read_with_tombstones(
        self, ids: Sequence[str]
    ) -> tuple[dict[str, StoredFragment], dict[str, Tombstone]]:
        self.reads.append(list(ids))
        return super().read_with_tombstones(ids)

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        self.writes.append([write.id for write in writes])
        self._race(self, len(self.writes))
        return super().write(writes)

    def interfere(self, name: str, ordinal: int, path: str = "other") -> None:
        """Another writer's change."""
        present = MemoryProfileStore.read(self, [name]).get(name)
        merged = FragmentState.decode(present.state) if present else FragmentState()
        merged.join(state(ordinal, name, path))
        version = present.version if present else 0
        MemoryProfileStore.write(self, [FragmentWrite(name, version, merged.encode(), frozenset())])


def committer(store: MemoryProfileStore, pauses: list[float], retries: int = 3) -> Committer:
    return Committer(store, Backoff(retries=retries, base=0.01, cap=0.03), pauses.append)


def test_one_read_and_one_write_when_nobody_interferes() -> None:
    store, pauses = _Racing(lambda *_: None), list[float]()
    result = committer(store, pauses).commit({f"user_id:{n}": state(1, f"user_id:{n}") for n in range(5)})
    assert (len(store.reads), len(store.writes), pauses) == (1, 1, [])
    assert sorted((name, version) for name, version in result.versions.items()) == [
        (f"user_id:{n}", 1) for n in range(5)
    ]


def test_what_changes_nothing_is_not_written() -> None:
    store, pauses = _Racing(lambda *_: None), list[float]()
    commit = committer(store, pauses).commit
    commit({"user_id:1": state(2)})
    assert commit({"user_id:1": state(2)}).unchanged == 1
    assert commit({"user_id:1": state(2), "user_id:2": state(1, "user_id:2")}).unchanged == 1
    assert store.writes == [["user_id:1"], ["user_id:2"]]
    assert commit({}).versions == {}


def test_only_new_identifiers_are_written() -> None:
    seen: list[frozenset[str]] = []

    class Store(MemoryProfileStore):
        def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
            seen.extend(write.identifiers for write in writes)
            return super().write(writes)

    commit = Committer(Store()).commit
    commit({"user_id:1": state(1)})
    commit({"user_id:1": state(2)})
    assert seen == [frozenset({"user_id:1"}), frozenset()]


def test_a_conflict_reads_again_and_keeps_both() -> None:
    store = _Racing(lambda self, time: self.interfere("user_id:1", 7) if time == 1 else None)
    pauses: list[float] = []
    result = committer(store, pauses).commit({"user_id:1": state(1), "user_id:2": state(1, "user_id:2")})
    assert store.reads == [["user_id:1", "user_id:2"], ["user_id:1"]]
    assert (value(store), value(store, path="other")) == (1, 7)
    assert result.versions == {"user_id:1": 2, "user_id:2": 1}
    assert (result.conflicts, len(pauses)) == (1, 1)


def test_what_another_writer_wrote_already_is_no_write_of_ours() -> None:
    store = _Racing(lambda self, time: self.interfere("user_id:1", 1, "a") if time == 1 else None)
    result = committer(store, []).commit({"user_id:1": state(1)})
    assert (result.versions, result.unchanged, result.conflicts) == ({}, 1, 1)


def test_it_gives_up_within_bounds_and_the_others_are_written() -> None:
    store = _Racing(lambda self, time: self.interfere("user_id:1", time))
    pauses: list[float] = []
    with pytest.raises(ConflictError, match=r"1 fragment\(s\) kept changing through 3 retries"):
        committer(store, pauses).commit({"user_id:1": state(1), "user_id:2": state(1, "user_id:2")})
    assert len(store.writes) == 4
    assert value(store, "user_id:2") == 1
    # Given again whole, it is done.
    store._race = lambda *_: None
    result = committer(store, pauses).commit({"user_id:1": state(1), "user_id:2": state(1, "user_id:2")})
    assert result.unchanged == 1
    assert value(store) == 1


def test_a_fragment_that_stays_stuck_is_a_conflict_at_each_attempt() -> None:
    store = _Racing(lambda self, time: self.interfere("user_id:1", time))
    committer = Committer(store, Backoff(retries=3), lambda _: None, gives_up=True)
    result = committer.commit({"user_id:1": state(1), "user_id:2": state(1, "user_id:2")})
    assert (len(store.writes), list(result.failed)) == (4, ["user_id:1"])
    # The last attempt met another writer too, though no retry follows it.
    assert (result.conflicts, result.retries) == (4, 3)


def test_pauses_grow_to_a_bound_and_are_random() -> None:
    backoff = Backoff(retries=12, base=0.005, cap=1.0)
    for attempt, most in ((0, 0.005), (3, 0.04), (20, 1.0), (500, 1.0)):
        pauses = [backoff.pause(attempt) for _ in range(200)]
        assert all(0 <= pause <= most for pause in pauses)
        assert max(pauses) > most / 2
        assert len(set(pauses)) > 100


def test_a_conflict_error_is_retryable_like_any_of_the_store() -> None:
    assert issubclass(ConflictError, StoreError)


def test_a_store_that_is_away_is_an_error() -> None:
    store = MemoryProfileStore()
    store.close()
    with pytest.raises(StoreError):
        Committer(store, Backoff(base=0.0)).commit({"user_id:1": state(1)})


def test_what_was_given_is_not_touched() -> None:
    store, given = MemoryProfileStore(), state(1)
    before = given.encode()
    Committer(store).commit({"user_id:1": given})
    Committer(store).commit({"user_id:1": state(2)})
    Committer(store).commit({"user_id:1": given})
    assert given.encode() == before
