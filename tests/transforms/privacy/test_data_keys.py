"""Data keys of fragments: one read a batch, created once, cached within bounds."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from idgraph.model.errors import KeyProviderError, StoreError
from idgraph.model.stamps import Stamp
from sinks.keyring.provider import KeyringFile
from sinks.sqlite.data_keys import SqliteDataKeys
from tests.support.memory.data_keys import MemoryDataKeys
from transforms.privacy.keys import WrappedKey
from transforms.privacy.sealing import DataKeys, UnusableKey

PLACE = ("identity.email", Stamp(0, 1, "shop", "event-1"))
ROOT = Path(__file__).parents[3]


class CountingStore(MemoryDataKeys):
    """Notes what it was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.reads: list[list[str]] = []
        self.writes: list[list[str]] = []

    def get(self, fragment_ids: Sequence[str]) -> dict[str, WrappedKey]:
        self.reads.append(list(fragment_ids))
        return super().get(fragment_ids)

    def put_absent(self, keys: Mapping[str, WrappedKey]) -> dict[str, WrappedKey]:
        self.writes.append(list(keys))
        return super().put_absent(keys)


@pytest.fixture
def keyring(tmp_path: Path) -> KeyringFile:
    return KeyringFile.create(tmp_path / "keyring.json")


@pytest.fixture
def store() -> CountingStore:
    return CountingStore()


def test_one_read_and_one_write_for_a_batch(keyring: KeyringFile, store: CountingStore) -> None:
    keys = DataKeys(keyring, store)
    first = keys.fetch(["a", "b", "a"], create=True)
    assert sorted(first) == ["a", "b"]
    again = keys.fetch(iter(["b", "c", "a"]), create=True)
    assert again["a"] is first["a"]
    assert (store.reads, store.writes) == ([["a", "b"], ["c"]], [["a", "b"], ["c"]])
    assert keys.fetch([], create=True) == {}


def test_every_process_opens_what_another_sealed(keyring: KeyringFile, store: CountingStore) -> None:
    sealed = DataKeys(keyring, store).fetch(["a"], create=True)["a"].seal("x", *PLACE)
    for create in (True, False):
        assert DataKeys(keyring, store).fetch(["a"], create)["a"].open(sealed, *PLACE) == "x"


def test_reading_makes_no_keys(keyring: KeyringFile, store: CountingStore) -> None:
    assert DataKeys(keyring, store).fetch(["a"], create=False) == {}
    assert store.writes == []


def test_every_fragment_has_a_key_of_its_own(keyring: KeyringFile, store: CountingStore) -> None:
    keys = DataKeys(keyring, store).fetch([f"f{number}" for number in range(50)], create=True)
    assert len({key.seal("x", *PLACE)[7:] for key in keys.values()}) == 50


def test_the_cache_is_bounded_and_keeps_what_was_used_last(
    keyring: KeyringFile, store: CountingStore
) -> None:
    keys = DataKeys(keyring, store, cache_size=2)
    assert len(keys.fetch(["a", "b", "c"], create=True)) == 3
    keys.fetch(["b"], create=True)
    keys.fetch(["d"], create=True)
    store.reads.clear()
    keys.fetch(["b", "d"], create=True)
    keys.fetch(["c"], create=True)
    assert store.reads == [["c"]]


def test_an_erased_key_is_forgotten_after_its_time(keyring: KeyringFile, store: CountingStore) -> None:
    clock = [0.0]
    keys = DataKeys(keyring, store, cache_seconds=10, now=lambda: clock[0])
    keys.fetch(["a"], create=True)
    store.delete(["a"])
    clock[0] = 9.9
    assert list(keys.fetch(["a"], create=False)) == ["a"]
    clock[0] = 10
    assert keys.fetch(["a"], create=False) == {}


def test_keys_that_nobody_asks_for_leave_memory_too(keyring: KeyringFile, store: CountingStore) -> None:
    clock = [0.0]
    keys = DataKeys(keyring, store, cache_seconds=10, now=lambda: clock[0])
    keys.fetch(["a"], create=True)
    clock[0] = 11
    keys.fetch(["b"], create=True)
    assert list(keys._cache) == ["b"]


def test_a_damaged_key_hurts_only_its_fragment(keyring: KeyringFile, store: CountingStore) -> None:
    DataKeys(keyring, store).fetch(["a", "b"], create=True)
    good = store.get(["a"])["a"]
    store.delete(["a"])
    store.put_absent(
        {"a": good._replace(wrapped=good.wrapped[:-1] + bytes([good.wrapped[-1] ^ 1])), "moved": good}
    )
    keys = DataKeys(keyring, store)
    fetched = keys.fetch(["a", "b", "moved"], create=True)
    assert fetched["b"].open(fetched["b"].seal("x", *PLACE), *PLACE) == "x"
    for name in ("a", "moved"):
        with pytest.raises(KeyProviderError, match="altered, or belongs to another fragment"):
            fetched[name].seal("x", *PLACE)
    store.delete(["a"])
    store.put_absent({"a": good})
    assert not isinstance(keys.fetch(["a"], create=False)["a"], UnusableKey), "it is not cached"


def test_a_store_that_is_away_stops_the_batch(keyring: KeyringFile, store: CountingStore) -> None:
    keys = DataKeys(keyring, store)
    keys.close()
    with pytest.raises(StoreError):
        keys.fetch(["a"], create=True)


def test_a_store_that_breaks_its_contract_is_noticed(keyring: KeyringFile) -> None:
    class Forgetful(MemoryDataKeys):
        def put_absent(self, keys: Mapping[str, WrappedKey]) -> dict[str, WrappedKey]:
            return {}

    with pytest.raises(StoreError, match="did not give it back"):
        DataKeys(keyring, Forgetful()).fetch(["a"], create=True)


def test_close_forgets_the_keys(keyring: KeyringFile, store: CountingStore) -> None:
    keys = DataKeys(keyring, store)
    keys.fetch(["a"], create=True)
    keys.close()
    with pytest.raises(StoreError):
        keys.fetch(["a"], create=True)


def test_the_one_who_came_second_goes_on_with_the_stored_key(
    keyring: KeyringFile, store: CountingStore
) -> None:
    class Overtaken(CountingStore):
        """Another worker writes between this one's read and its write."""

        def get(self, fragment_ids: Sequence[str]) -> dict[str, WrappedKey]:
            found = super().get(fragment_ids)
            if len(self.reads) == 1:
                DataKeys(keyring, self).fetch(["a"], create=True)
            return found

    shared = Overtaken()
    late = DataKeys(keyring, shared).fetch(["a", "b"], create=True)
    fresh = DataKeys(keyring, shared).fetch(["a", "b"], create=False)
    for name in ("a", "b"):
        assert late[name].seal("x", *PLACE) == fresh[name].seal("x", *PLACE)


WORKER = """
import sys
from pathlib import Path
from sinks.keyring.provider import KeyringFile
from sinks.sqlite.data_keys import SqliteDataKeys
from idgraph.model.stamps import Stamp
from transforms.privacy.sealing import DataKeys

class Waiting(SqliteDataKeys):
    def get(self, fragment_ids):
        found = super().get(fragment_ids)
        print("read", len(found), flush=True)
        sys.stdin.readline()
        return found

directory = Path(sys.argv[1])
store = Waiting(directory / "data-keys.db")
keys = DataKeys(KeyringFile(directory / "keyring.json"), store)
fetched = keys.fetch([f"f{number}" for number in range(200)], create=True)
for number in range(200):
    print(fetched[f"f{number}"].seal("x", "p", Stamp(0, 1, "s", "e")))
keys.close()
"""


def test_two_processes_that_create_at_once_agree(keyring: KeyringFile, tmp_path: Path) -> None:
    store = SqliteDataKeys(tmp_path / "data-keys.db")
    store.get(["f0"])
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", WORKER, str(tmp_path)],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "read 0\n", "neither may see the other's keys yet"
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.write("\n")
        worker.stdin.flush()
    sealed = [worker.communicate(timeout=60)[0].split() for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0]
    names = [f"f{number}" for number in range(200)]
    keys = DataKeys(keyring, store).fetch(names, create=False)
    assert sealed[0] == sealed[1] == [keys[name].seal("x", "p", Stamp(0, 1, "s", "e")) for name in names]
    store.close()


def test_data_keys_show_nothing_and_stay_where_they_are(keyring: KeyringFile, store: CountingStore) -> None:
    keys = DataKeys(keyring, store)
    keys.fetch(["canary"], create=True)
    assert repr(keys) == str(keys) == "<DataKeys>"
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="DataKeys holds keys"):
            leave(keys)
