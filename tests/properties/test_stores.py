"""The profile stores and their companions do what their memory reference implementations do, whatever is asked of them in turn."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from idgraph.model.pins import PinRecord
from idgraph.model.store import FragmentWrite, OutboxEntry, ProfileStore
from idgraph.model.timelines import PageKey
from sinks.sqlite.data_keys import SqliteDataKeys
from sinks.sqlite.profiles import SqliteProfileStore
from tests.contracts.implementations import hashed_name
from tests.folders import in_memory
from tests.lanes import examples
from tests.servers.dynamodb import place, require_dynamodb
from tests.support.memory.data_keys import MemoryDataKeys
from tests.support.memory.profiles import MemoryProfileStore
from transforms.privacy.keys import WrappedKey

IDS = ["a:1", "a:10", "A:1", "b:'\"%_", "é:1", "\ue000:1", "\U0001f600:1", "long:" + "x" * 1024]
ids = st.sampled_from(IDS)
names = st.sampled_from([*IDS, "email:~1", "email:~2"])
states = st.binary(max_size=40) | st.just(b"s" * 20_000)
activities, days = st.sampled_from("ab"), st.integers(0, 3)
writes = st.lists(
    st.builds(
        FragmentWrite,
        ids,
        st.integers(0, 4),
        states,
        st.frozensets(names, max_size=3),
        st.integers(0, 3),
        st.frozensets(names, max_size=1),
        st.dictionaries(st.builds(PageKey, activities, days), st.binary(max_size=9), max_size=3),
        st.dictionaries(activities, days, max_size=1),
    ),
    max_size=6,
    unique_by=lambda write: write.id,
)


class StoreMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = in_memory()
        self.store = self.opened(Path(self.folder.name))
        self.memory = MemoryProfileStore(hashed_name)

    def opened(self, folder: Path) -> ProfileStore:
        return SqliteProfileStore(folder / "profiles.db", hashed_name)

    @rule(batch=writes)
    def write(self, batch: list[FragmentWrite]) -> None:
        assert self.store.write(batch) == self.memory.write(batch)

    @rule(batch=writes, stale=st.sets(ids))
    def write_what_was_read(self, batch: list[FragmentWrite], stale: set[str]) -> None:
        present = self.store.read([write.id for write in batch])
        versions = {each: tombstoned.version for each, tombstoned in self.store.tombstones(IDS).items()}
        versions |= {each: present[each].version - (each in stale) for each in present}
        self.write([write._replace(expected_version=versions.get(write.id, 0)) for write in batch])

    @rule(wanted=st.lists(ids, max_size=4))
    def read(self, wanted: list[str]) -> None:
        found = self.store.read(wanted)
        assert found == self.memory.read(wanted)
        tombstoned = self.store.tombstones(wanted)
        assert self.store.read_with_tombstones(wanted) == (found, tombstoned)
        assert self.memory.read_with_tombstones(wanted) == (found, tombstoned)
        assert self.store.read_with_shared(wanted)[0] == self.memory.read_with_shared(wanted)[0] == found
        shared = self.store.read_with_shared(wanted)[1]
        assert shared is None or shared[:2] == self.memory.read_with_shared(wanted)[1][:2]
        for identifier, carriers in shared.carriers.items() if shared is not None else ():
            assert sorted(carriers) == self.memory.find(identifier)

    @rule(entries=st.lists(st.builds(OutboxEntry, ids, st.integers(1, 4)), max_size=4))
    def settle_anything(self, entries: list[OutboxEntry]) -> None:
        self.store.settle(entries)
        self.memory.settle(entries)

    @rule(limit=st.integers(1, 3))
    def settle_the_oldest(self, limit: int) -> None:
        entries = self.store.outbox(limit)
        assert {entry.fragment_id for entry in entries} <= {
            entry.fragment_id for entry in self.memory.outbox()
        }
        self.settle_anything(entries)

    @rule(low=names, high=names, is_added=st.booleans())
    def pin(self, low: str, high: str, is_added: bool) -> None:
        for store in (self.store, self.memory):
            if is_added:
                store.add_pins([PinRecord(low, high, 1, "never")])
            else:
                store.drop_pins([low])

    @rule(name=names)
    def find(self, name: str) -> None:
        assert self.store.find(name) == self.memory.find(name)
        assert self.store.identifiers(name) == self.memory.identifiers(name)

    @rule(after=ids | st.just(""), limit=st.integers(1, 9))
    def scan(self, after: str, limit: int) -> None:
        page = self.store.scan(after, limit)
        assert len(page) <= limit
        assert {each.id: each for each in page} == self.memory.read([each.id for each in page])
        assert list(self.store.ids()) == list(self.memory.ids())

    @rule(gone=st.lists(ids, max_size=3, unique=True), until=st.integers(1, 3))
    def erase(self, gone: list[str], until: int) -> None:
        assert self.store.summaries(gone) == self.memory.summaries(gone)
        assert self.store.erase(gone, until) == self.memory.erase(gone, until)

    @rule(done=st.lists(ids, max_size=3), cancelled=st.booleans())
    def finish(self, done: list[str], cancelled: bool) -> None:
        self.store.finish(done)
        self.memory.finish(done)
        if cancelled:
            assert self.store.cancel(done) == self.memory.cancel(done)

    @rule(gone=st.sets(ids, max_size=3), stale=st.booleans())
    def withdraw(self, gone: set[str], stale: bool) -> None:
        versions = {each: found.version - stale for each, found in self.store.read(sorted(gone)).items()}
        assert self.store.withdraw(versions) == self.memory.withdraw(versions)

    @rule(done=st.lists(ids, max_size=3))
    def forget_withdrawn(self, done: list[str]) -> None:
        self.store.forget_withdrawn(done)
        self.memory.forget_withdrawn(done)

    @rule()
    def reopen(self) -> None:
        self.store.close()
        self.store = self.opened(Path(self.folder.name))

    @invariant()
    def same(self) -> None:
        assert self.store.unfinished() == self.memory.unfinished()
        assert self.store.withdrawn() == self.memory.withdrawn()
        assert self.store.all_tombstones() == self.memory.all_tombstones()
        assert self.store.count() == self.memory.count()
        assert self.store.timelines(IDS) == self.memory.timelines(IDS)
        # The order within one batch is nobody's promise.
        assert sorted(self.store.outbox()) == sorted(self.memory.outbox())

    def teardown(self) -> None:
        self.store.close()
        self.folder.cleanup()


class DynamoMachine(StoreMachine):
    def opened(self, folder: Path) -> ProfileStore:
        from sinks.dynamodb.profiles import DynamoProfileStore

        return DynamoProfileStore(place(folder), hashed_name)


class DataKeysMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.folder = in_memory()
        self.sqlite = SqliteDataKeys(Path(self.folder.name) / "keys.db")
        self.memory = MemoryDataKeys()

    @rule(keys=st.dictionaries(ids, st.builds(WrappedKey, st.integers(1, 9), st.binary(max_size=80))))
    def put_absent(self, keys: dict[str, WrappedKey]) -> None:
        assert self.sqlite.put_absent(keys) == self.memory.put_absent(keys)

    @rule(gone=st.lists(ids, max_size=3))
    def delete(self, gone: list[str]) -> None:
        assert self.sqlite.delete(gone) == self.memory.delete(gone)

    @rule(names=st.sets(ids), stale=st.sets(ids), version=st.integers(1, 9))
    def replace(self, names: set[str], stale: set[str], version: int) -> None:
        stored = {name: key for name, key in self.memory.get(sorted(names)).items() if name not in stale}
        guess = dict.fromkeys(stale, WrappedKey(version, b"guess"))
        keys = {name: (old, WrappedKey(version, b"new")) for name, old in {**stored, **guess}.items()}
        assert self.sqlite.replace(keys) == self.memory.replace(keys)

    @invariant()
    def same(self) -> None:
        assert self.sqlite.get(IDS) == self.memory.get(IDS)
        assert self.sqlite.counts() == self.memory.counts()
        for version in (1, 9):
            assert list(self.sqlite.wrapped_by(version, "", 3)) == list(
                self.memory.wrapped_by(version, "", 3)
            )

    def teardown(self) -> None:
        self.sqlite.close()
        self.folder.cleanup()


_SETTINGS = settings(max_examples=examples(40), stateful_step_count=20, deadline=None)


def test_sqlite_store_equals_memory_store() -> None:
    run_state_machine_as_test(StoreMachine, settings=_SETTINGS)


@pytest.mark.long
def test_dynamodb_store_equals_memory_store() -> None:
    require_dynamodb()
    few = settings(_SETTINGS, max_examples=examples(3, 2), stateful_step_count=10)
    run_state_machine_as_test(DynamoMachine, settings=few)


def test_sqlite_data_keys_equal_memory_data_keys() -> None:
    run_state_machine_as_test(DataKeysMachine, settings=_SETTINGS)
