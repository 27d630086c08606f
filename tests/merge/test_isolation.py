"""A fragment that can never be committed fails alone; the others are written."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.attributes import Reconciliation, ReconciliationPolicy
from idgraph.model.backoff import Backoff
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import ConflictError, StoreError, UnstorableError
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.stamps import SpecRef, Stamp
from idgraph.model.store import FragmentWrite, StoredFragment
from idgraph.model.tombstones import Tombstone
from merge.commit import Committer
from merge.fragments import FragmentState
from tests.merge.test_commit import state, value
from tests.support.memory.profiles import MemoryProfileStore


class _Store(MemoryProfileStore):
    """Refuses some fragments for good, and is away for a number of calls."""

    def __init__(self, refused: set[str] | None = None, away: int = 0) -> None:
        super().__init__()
        self.refused = refused or set()
        self.away = away
        self.sizes: list[int] = []

    def read_with_tombstones(
        self, ids: Sequence[str]
    ) -> tuple[dict[str, StoredFragment], dict[str, Tombstone]]:
        if self.away:
            self.away -= 1
            raise StoreError("the store is away")
        return super().read_with_tombstones(ids)

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        self.sizes.append(len(writes))
        if self.refused & {write.id for write in writes}:
            raise UnstorableError("an item is larger than the store takes")
        return super().write(writes)


def changes(count: int) -> dict[str, FragmentState]:
    return {f"user_id:{n}": state(1, f"user_id:{n}") for n in range(count)}


def committer(
    store: MemoryProfileStore, pauses: list[float], retries: int = 4, gives_up: bool = False
) -> Committer:
    return Committer(store, Backoff(retries), pauses.append, gives_up=gives_up)


@given(st.sets(st.integers(0, 39), max_size=6))
def test_what_the_store_refuses_is_found_and_the_rest_is_written(poison: set[int]) -> None:
    store, pauses = _Store({f"user_id:{n}" for n in poison}), list[float]()
    result = committer(store, pauses).commit(changes(40))
    assert set(result.failed) == store.refused
    assert {failure.reason for failure in result.failed.values()} <= {DeadLetterReason.REFUSED_BY_STORE}
    assert result.versions.keys() == changes(40).keys() - store.refused
    # To wait would not help, and halving is quick.
    assert pauses == []
    assert len(store.sizes) <= 1 + len(poison) * 12


def test_a_fragment_that_would_grow_without_end_fails_alone() -> None:
    """Found by review: a thousand values of a megabyte are within the bounds, and took all memory at each event."""
    under = {"a": Reconciliation(ReconciliationPolicy.APPEND, ())}

    def change(name: str, number: int, value: str | None) -> FragmentState:
        origin = Origin(Stamp(0, number, "shop", f"e{number}"), SpecRef("spec", 1))
        made = FragmentState()
        written = {"a": Register(origin, Kind.PLAIN if value else Kind.DELETED, value)}
        made.apply(FragmentChange(name, origin, written, (), None, under))
        return made

    store = MemoryProfileStore()
    writer = committer(store, [])
    failed: list[int] = []
    for number in range(1, 25):
        values = {"a:hot": f"{number:03}" * 300_000, "a:other": f"{number:03}"}
        result = writer.commit({name: change(name, number, value) for name, value in values.items()})
        assert result.failed.keys() <= {"a:hot"}
        assert "a:other" in result.versions
        for failure in result.failed.values():
            assert failure.reason is DeadLetterReason.REFUSED_BY_STORE
            assert "16,777,216 bytes" in failure.detail
            failed.append(number)
    assert failed == list(range(18, 25))
    assert 15 << 20 < len(store.read(["a:hot"])["a:hot"].state) < 16 << 20
    assert writer.commit({"a:hot": change("a:hot", 30, None)}).failed == {}
    assert len(store.read(["a:hot"])["a:hot"].state) < 1000


class _LateStore(MemoryProfileStore):
    """Finds out in the middle of a write what it cannot take: the rest is written, what is late refused."""

    def __init__(self, unstorable: set[str], late: set[str]) -> None:
        super().__init__()
        self._unstorable = unstorable
        self._late = late

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        ids = {write.id for write in writes}
        refused, self._late = ids & self._late, set[str]()
        poison = ids & self._unstorable
        refused |= super().write([each for each in writes if each.id not in refused | poison])
        if poison:
            raise UnstorableError(
                "an item is larger than the store takes", frozenset(poison), frozenset(refused)
            )
        return refused


@given(st.sets(st.integers(0, 9)), st.sets(st.integers(0, 9)))
def test_what_was_written_beside_it_is_reported_as_written(poison: set[int], late: set[int]) -> None:
    unstorable = {f"user_id:{n}" for n in poison}
    store = _LateStore(unstorable, {f"user_id:{n}" for n in late - poison})
    result = committer(store, []).commit(changes(10))
    assert set(result.failed) == unstorable
    # Reported as written, they are indexed at once; found unchanged, they would wait in the outbox.
    assert sorted(result.versions) == sorted(changes(10).keys() - unstorable)
    assert result.unchanged == 0
    assert result.conflicts == len(late - poison)


def test_the_failure_has_all_that_is_needed_to_try_again() -> None:
    store = _Store({"user_id:1"})
    result = committer(store, []).commit(changes(3))
    store.refused = set()
    committer(store, []).commit({name: failure.change for name, failure in result.failed.items()})
    assert value(store, "user_id:1") == 1


def test_a_store_that_is_away_for_a_while_is_tried_in_smaller_parts() -> None:
    store, pauses = _Store(away=2), list[float]()
    result = committer(store, pauses).commit(changes(8))
    assert result.written == 8
    assert (result.retries, result.outages, len(pauses)) == (2, 2, 2)
    assert sorted(store.sizes) == [2, 2, 4]


def test_a_store_that_stays_away_ends_it_within_bounds() -> None:
    store, pauses = _Store(away=1000), list[float]()
    with pytest.raises(StoreError, match="away"):
        committer(store, pauses).commit(changes(64))
    assert len(pauses) == 4


def test_a_merge_that_fails_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    store = _Store()
    whole = FragmentState.normalise

    def normalise(self: FragmentState) -> None:
        if "user_id:2" in self.identifiers:
            raise RecursionError("a value of the event")
        whole(self)

    given_ones = changes(4)
    monkeypatch.setattr(FragmentState, "normalise", normalise)
    result = committer(store, []).commit(given_ones)
    (failure,) = result.failed.values()
    assert (failure.fragment_id, failure.reason) == ("user_id:2", DeadLetterReason.MERGE_FAILED)
    assert failure.detail == "RecursionError"
    assert result.written == 3


def test_want_of_memory_is_no_fault_of_a_fragment(monkeypatch: pytest.MonkeyPatch) -> None:
    store = _Store()

    def encode(_: object) -> bytes:
        raise MemoryError

    given_ones = changes(4)
    with monkeypatch.context() as want:
        want.setattr("merge.codec.encode", encode)
        with pytest.raises(MemoryError):
            committer(store, []).commit(given_ones)
    assert committer(store, []).commit(changes(4)).written == 4


class _Hot(MemoryProfileStore):
    """One fragment always has another version by the time that it is written."""

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        hot = {write.id for write in writes if write.id == "user_id:0"}
        return hot | super().write([write for write in writes if write.id not in hot])


def test_what_keeps_changing_is_given_again_until_the_last_attempt() -> None:
    with pytest.raises(ConflictError):
        committer(_Hot(), []).commit(changes(3))
    store = _Hot()
    result = committer(store, [], gives_up=True).commit(changes(3))
    assert [failure.reason for failure in result.failed.values()] == [DeadLetterReason.CONFLICT]
    assert (result.conflicts, result.retries, store.count()) == (5, 4, 2)
