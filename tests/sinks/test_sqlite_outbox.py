"""The outbox in runs: the contract suite says what an outbox is, this how runs are kept."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.store import FragmentWrite, OutboxEntry
from sinks.sqlite import outbox as sqlite_outbox
from sinks.sqlite.profiles import SqliteProfileStore

STATE = b"state"


def new(ids: list[str], version: int = 0) -> list[FragmentWrite]:
    return [FragmentWrite(each, version, STATE, frozenset({each})) for each in ids]


def named(batch: str, count: int) -> list[str]:
    return [f"{batch}:{number:03}" for number in range(count)]


def of(ids: list[str], version: int = 1) -> list[OutboxEntry]:
    return [OutboxEntry(each, version) for each in ids]


@pytest.fixture
def store(tmp_path: Path) -> SqliteProfileStore:
    return SqliteProfileStore(tmp_path / "profiles.db", lambda name: name.encode())


def rows(store: SqliteProfileStore) -> list[tuple[int, int]]:
    """How many fragments stand alone, and how many runs there are."""
    connection = sqlite3.connect(store._file.path)
    counted = connection.execute(
        "SELECT (SELECT count(*) FROM outbox), (SELECT count(*) FROM outbox_runs)"
    ).fetchall()
    connection.close()
    return counted


def test_new_fragments_of_a_write_are_one_row_which_goes_when_they_are_settled(
    store: SqliteProfileStore,
) -> None:
    ids = named("a", 50)
    store.write(new(ids))
    assert rows(store) == [(0, 1)]
    store.settle(of(ids))
    assert rows(store) == [(0, 0)]


def test_what_is_left_of_a_run_keeps_its_place(store: SqliteProfileStore) -> None:
    first, second = named("a", 10), named("b", 10)
    store.write(new(first))
    store.write(new(second))
    store.settle(of(first[3:5] + first[7:9]))
    left = first[:3] + first[5:7] + first[9:]
    assert store.outbox() == of(left + second)
    assert store.outbox(4) == of(left[:4])


def test_what_is_written_again_goes_behind_the_runs_that_wait(store: SqliteProfileStore) -> None:
    first, second = named("a", 3), named("b", 3)
    store.write(new(first))
    store.settle(of(first))
    store.write(new(first[:1], 1))
    store.write(new(second))
    store.write([*new(first[:1], 2), *new(first[1:], 1)])
    assert store.outbox() == of(first[:1], 3) + of(second) + of(first[1:], 2)


def test_another_writers_newer_version_stays_when_the_run_is_settled(store: SqliteProfileStore) -> None:
    ids = named("a", 9)
    store.write(new(ids))
    store.write(new(ids[4:5], 1))
    store.settle(of(ids))
    assert store.outbox() == of(ids[4:5], 2)
    store.settle(of(ids[4:5], 2))
    assert rows(store) == [(0, 0)]


def test_one_fragment_is_settled_out_of_another_writers_run(store: SqliteProfileStore) -> None:
    ids = named("a", 9)
    store.write(new(ids))
    store.write(new(ids[4:5], 1))
    store.settle(of(ids[4:5], 2))
    assert store.outbox() == of(ids[:4] + ids[5:])
    store.settle(of(ids))
    assert rows(store) == [(0, 0)]


def test_many_runs_are_drained_from_the_oldest_on(store: SqliteProfileStore) -> None:
    batches = [named(f"b{number:02}", 7) for number in range(30)]
    for ids in batches:
        store.write(new(ids))
    seen: list[OutboxEntry] = []
    while entries := store.outbox(10):
        seen += entries
        store.settle(entries)
    assert seen == [entry for ids in batches for entry in of(ids)]
    assert rows(store) == [(0, 0)]


def test_a_run_of_which_all_is_erased_leaves_nothing_that_new_numbers_meet(store: SqliteProfileStore) -> None:
    store.write(new(named("a", 5)))
    store.erase(named("a", 5), 1)
    assert rows(store) == [(0, 0)]
    again = named("b", 8)
    store.write(new(again))
    assert store.outbox() == of(again)


def test_the_outbox_of_a_file_of_the_form_before_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "profiles.db"
    store = SqliteProfileStore(path)
    store.write(new(named("a", 3)))
    store.close()
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (
        "DROP TABLE marks",
        "DROP TABLE outbox_runs",
        "INSERT INTO outbox (fragment) SELECT number FROM fragments WHERE id <> 'a:001' ORDER BY id DESC",
        "PRAGMA user_version = 3",
    ):
        connection.execute(statement)
    connection.close()
    store = SqliteProfileStore(path)
    store.write(new(["b:1"]))
    assert store.outbox() == of(["a:002", "a:000", "b:1"])
    store.settle(of(["a:002", "b:1"]))
    assert store.outbox() == of(["a:000"])


numbers = st.integers(1, 12)
steps = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 6), st.frozensets(numbers, max_size=5)),
    st.tuples(st.just("settle"), st.integers(0, 1), st.frozensets(numbers)),
    st.tuples(st.just("remove"), numbers, st.just(frozenset[int]())),
)


@given(st.lists(steps, max_size=25))
def test_runs_hold_what_a_set_of_numbers_would(done: list[tuple[str, int, frozenset[int]]]) -> None:
    connection = sqlite3.connect(":memory:")
    fragments = "CREATE TABLE fragments (number INTEGER PRIMARY KEY, id TEXT UNIQUE, version INTEGER)"
    for statement in (fragments, sqlite_outbox.TABLE, *sqlite_outbox.RUNS):
        connection.execute(statement)
    versions: dict[int, int] = {}
    waiting: set[int] = set()
    for kind, count, some in done:
        known = some & versions.keys()
        if kind == "write":
            first = max(versions, default=0) + 1
            versions |= dict.fromkeys(range(first, first + count), 1) | {
                each: versions[each] + 1 for each in known
            }
            connection.executemany(
                "INSERT OR REPLACE INTO fragments VALUES (?, ?, ?)",
                [(number, str(number), version) for number, version in versions.items()],
            )
            sqlite_outbox.add(connection, first, first + count, known)
            waiting |= set(range(first, first + count)) | known
        elif kind == "settle":
            sqlite_outbox.settle(
                connection, [OutboxEntry(str(each), versions.get(each, 1) - count) for each in some]
            )
            waiting -= set() if count else known
        elif count in versions:
            connection.execute("DELETE FROM fragments WHERE number = ?", (count,))
            sqlite_outbox.remove(connection, count)
            waiting.discard(count)
            del versions[count]
        reported = [int(entry.fragment_id) for entry in sqlite_outbox.entries(connection, 1000)]
        assert sorted(reported) == sorted(waiting), "each once"
        assert all(sqlite_outbox.waits(connection, each) == (each in waiting) for each in range(1, 40))
    connection.close()
