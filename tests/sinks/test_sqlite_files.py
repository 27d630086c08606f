"""Invariants of every SQLite file of ours: permissions, damage, full disks, other formats."""

from __future__ import annotations

import gc
import os
import random
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from idgraph.model.dead_letters import DeadLetter, DeadLetterReason
from idgraph.model.errors import IdgraphError, StoreError
from idgraph.model.store import FragmentWrite
from idgraph.model.timelines import PageKey
from sinks.sqlite.data_keys import SqliteDataKeys
from sinks.sqlite.database import among
from sinks.sqlite.dead_letters import SqliteDeadLetters
from sinks.sqlite.profiles import SqliteProfileStore
from tests.contracts.processes import ROOT, finish, start
from transforms.privacy.keys import WrappedKey

SECRET = "value-that-came-in-an-event"


@dataclass
class Kind:
    """One sort of file: `put` writes a row that holds SECRET under a number, `ids` gives what is there."""

    open: Callable[[Path], Any]
    error: type[IdgraphError]
    put: Callable[[Any, int], Any]
    ids: Callable[[Any], list[str]]


KINDS = {
    "profiles": Kind(
        SqliteProfileStore,
        StoreError,
        lambda store, number: store.write(
            [FragmentWrite(f"{number}", 0, SECRET.encode() * 50, frozenset({f"{SECRET}:{number}"}))]
        ),
        lambda store: [fragment.id for fragment in store.scan(limit=100_000)],
    ),
    "dead letters": Kind(
        SqliteDeadLetters,
        StoreError,
        lambda dead_letters, number: dead_letters.put(
            [
                DeadLetter(
                    f"{number}",
                    DeadLetterReason.NO_SPEC,
                    "map",
                    "",
                    "s",
                    "p",
                    None,
                    1,
                    "b",
                    "a",
                    b"x" * 999,
                    1,
                )
            ]
        ),
        lambda dead_letters: [dead_letter.id for dead_letter in dead_letters.scan()],
    ),
    "data keys": Kind(
        SqliteDataKeys,
        StoreError,
        lambda keys, number: keys.put_absent({f"{number}": WrappedKey(1, SECRET.encode() * 10)}),
        lambda keys: list(keys.get([f"{number}" for number in range(5000)])),
    ),
}


@pytest.fixture(params=list(KINDS.values()), ids=list(KINDS))
def kind(request: pytest.FixtureRequest) -> Kind:
    found: Kind = request.param
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "private" / "file.db"


@pytest.fixture
def opened(kind: Kind, path: Path) -> Iterator[Any]:
    store = kind.open(path)
    yield store
    store.close()


def test_files_and_folder_are_the_owners_only(kind: Kind, path: Path, opened: Any) -> None:
    before = os.umask(0)
    try:
        kind.put(opened, 1)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    files = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.iterdir()}
    assert files.keys() == {"file.db", "file.db-wal", "file.db-shm"}
    assert set(files.values()) == {0o600}


def test_a_readable_file_is_made_private(kind: Kind, path: Path, opened: Any) -> None:
    path.parent.mkdir()
    path.touch(mode=0o644)
    kind.put(opened, 1)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_commits_reach_the_disk(kind: Kind, path: Path, opened: Any) -> None:
    def pragmas(connection: sqlite3.Connection) -> list[Any]:
        names = ("journal_mode", "synchronous", "secure_delete")
        return [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names]

    assert opened._file.read(pragmas) == ["wal", 2, 1]
    assert opened._file.write(pragmas) == ["wal", 2, 1]


def test_only_what_may_be_had_again_waits_for_the_next_commit_to_reach_the_disk(
    kind: Kind, opened: Any
) -> None:
    def flushes(connection: sqlite3.Connection) -> int:
        return int(connection.execute("PRAGMA synchronous").fetchone()[0])

    def fail(connection: sqlite3.Connection) -> None:
        raise sqlite3.DataError

    kind.put(opened, 1)
    assert opened._file.write_unflushed(flushes) == 1
    assert opened._file.write(flushes) == 2
    with pytest.raises(kind.error):
        opened._file.write_unflushed(fail)
    assert opened._file.write(flushes) == 2


@pytest.mark.parametrize("damage", ["text", "header", "middle"])
def test_a_damaged_file_is_named_and_no_value_shown(kind: Kind, path: Path, damage: str) -> None:
    store = kind.open(path)
    for number in range(300):
        kind.put(store, number)
    store.close()
    data = bytearray(path.read_bytes())
    if damage == "text":
        data = bytearray(SECRET.encode() * 1000)
    elif damage == "header":
        data[:100] = b"\xff" * 100
    else:
        data[8192:] = b"\xa5" * (len(data) - 8192)
    path.write_bytes(data)
    store = kind.open(path)

    def use() -> None:
        for number in range(300):
            kind.put(store, 1000 + number)
            kind.ids(store)

    with pytest.raises(kind.error) as raised:
        use()
    store.close()
    assert str(path) in str(raised.value)
    assert "damaged" in str(raised.value)
    assert SECRET not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_file_of_another_kind_is_refused(kind: Kind, path: Path, opened: Any) -> None:
    other = next(each for each in KINDS.values() if each is not kind)
    stranger = other.open(path)
    other.put(stranger, 1)
    with pytest.raises(kind.error, match="something else"):
        kind.ids(opened)
    assert other.ids(stranger) == ["1"]
    stranger.close()


def test_another_programs_database_is_refused(kind: Kind, path: Path, opened: Any) -> None:
    path.parent.mkdir()
    connection = sqlite3.connect(path)
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    with pytest.raises(kind.error, match="something else"):
        kind.put(opened, 1)


def test_a_newer_format_is_refused(kind: Kind, path: Path) -> None:
    store = kind.open(path)
    kind.put(store, 1)
    store.close()
    connection = sqlite3.connect(path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    store = kind.open(path)
    with pytest.raises(kind.error, match="format 99"):
        kind.ids(store)
    store.close()


def test_a_format_of_before_the_first_release_is_refused_whatever_number_it_has(
    kind: Kind, path: Path
) -> None:
    store = kind.open(path)
    kind.put(store, 1)
    store.close()
    with closing(sqlite3.connect(path)) as connection, connection:
        table = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchone()[0]
        connection.execute(f"ALTER TABLE {table} ADD COLUMN of_old")
        before = list(connection.iterdump())
    store = kind.open(path)
    with pytest.raises(kind.error, match="format 0"):
        kind.ids(store)
    store.close()
    with closing(sqlite3.connect(path)) as connection:
        assert list(connection.iterdump()) == before


def test_a_folder_that_cannot_be_made(kind: Kind, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = kind.open(tmp_path / "file" / "below" / "x.db")
    with pytest.raises(kind.error, match="below"):
        kind.put(store, 1)
    store.close()


def test_a_folder_in_place_of_the_file(kind: Kind, path: Path, opened: Any) -> None:
    path.mkdir(parents=True)
    with pytest.raises(kind.error, match="cannot be opened"):
        kind.put(opened, 1)


# The limit on file sizes is what a full disk looks like from inside; it works for root too.
_FILL = """
import resource, sys
from pathlib import Path
from idgraph.model.errors import IdgraphError
from tests.sinks.test_sqlite_files import KINDS, SECRET
kind = KINDS[sys.argv[1]]
store = kind.open(Path(sys.argv[2]))
kind.put(store, 0)
resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, resource.RLIM_INFINITY))
done = 0
try:
    for number in range(1, 5000):
        kind.put(store, number)
        done = number
except kind.error as error:
    assert sys.argv[2] in str(error) and SECRET not in str(error), error
    print(type(error).__name__, len(kind.ids(store)), done)
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
kind.put(store, 4999)
print(len(kind.ids(store)))
store.close()
"""


@pytest.mark.process
def test_a_full_disk_loses_nothing_and_heals(kind: Kind, path: Path) -> None:
    name = next(name for name, each in KINDS.items() if each is kind)
    full, healed = finish(start(_FILL, name, path)).splitlines()
    error, there, done = full.split()
    assert error == kind.error.__name__
    assert int(there) == int(done) + 1
    assert int(healed) == int(there) + 1
    store = kind.open(path)
    assert len(kind.ids(store)) == int(healed)
    store.close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_a_file_that_may_only_be_read_is_refused(kind: Kind) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file.db"
        store = kind.open(path)
        kind.put(store, 1)
        store.close()
        Path(folder).chmod(0o755)
        path.chmod(0o644)
        child = os.fork()
        if child == 0:
            os.setuid(65534)
            try:
                kind.put(kind.open(path), 2)
            except kind.error as error:
                os._exit(0 if str(path) in str(error) else 2)
            finally:
                os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        store = kind.open(path)
        assert kind.ids(store) == ["1"]
        store.close()


def test_a_lock_held_too_long_is_an_error_and_a_short_one_is_not(
    kind: Kind, path: Path, opened: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sinks.sqlite.database._BUSY_SECONDS", 0.05)
    monkeypatch.setattr("sinks.sqlite.database._RETRY_SECONDS", 0.3)
    kind.put(opened, 1)
    opened.close()
    store = kind.open(path)
    other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(kind.error, match="another writer"):
        kind.put(store, 2)
    assert kind.ids(store) == ["1"], "a writer does not hold readers"
    monkeypatch.setattr("sinks.sqlite.database._RETRY_SECONDS", 60)
    threading.Timer(0.15, lambda: other.execute("COMMIT")).start()
    kind.put(store, 2)
    other.close()
    store.close()


def test_a_log_is_emptied_as_soon_as_its_reader_lets_it_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by use: an erasure beside a flow gave up after a fraction of a second."""
    monkeypatch.setattr("sinks.sqlite.database._BUSY_SECONDS", 0.01)
    monkeypatch.setattr("sinks.sqlite.database._RETRY_SECONDS", 60)
    path = tmp_path / "profiles.db"
    store = SqliteProfileStore(path, lambda name: name.encode().ljust(16))
    store.write([FragmentWrite("a:1", 0, b"canary" * 10, frozenset())])
    reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM fragments").fetchone()
    store.erase(["a:1"], 1)
    log = path.with_name("profiles.db-wal")
    assert log.stat().st_size
    threading.Timer(0.5, lambda: reader.execute("COMMIT")).start()
    store.finish(["a:1"])
    assert log.stat().st_size == 0
    monkeypatch.setattr("sinks.sqlite.database._RETRY_SECONDS", 0.2)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM fragments").fetchone()
    store.erase(["a:1"], 2)
    with pytest.raises(StoreError, match=r"profiles\.db: deleted rows are still in the log"):
        store.finish(["a:1"])
    reader.close()
    store.close()


def test_the_package_can_be_imported_without_opening_anything(tmp_path: Path) -> None:
    program = "from sinks.sqlite.profiles import SqliteProfileStore; SqliteProfileStore('nothing/here.db')"
    subprocess.run([sys.executable, "-c", program], check=True, cwd=Path(__file__).parents[2])
    assert not Path("nothing").exists()


def test_nothing_of_what_was_erased_is_left_among_what_stays(tmp_path: Path) -> None:
    # Rows that grow are moved from page to page, and `secure_delete` lets stand what they leave.
    store = SqliteProfileStore(tmp_path / "profiles.db", names=lambda name: name.encode())
    drawn = random.Random(1)
    ids = [f"user_id:{drawn.random()}" for _ in range(2000)]
    erased = [each for each in ids if drawn.random() > 0.5]
    versions = dict.fromkeys(ids, 0)
    for turn in range(8):
        some = [each for each in sorted(ids) if not turn or drawn.random() < 0.5]
        states = {each: _secret_of(each) * drawn.randrange(5, 60) for each in some}
        assert not store.write(
            [
                FragmentWrite(
                    each, versions[each], state, frozenset(), pages={PageKey("orders", turn // 3): state}
                )
                for each, state in states.items()
            ]
        )
        versions |= {each: versions[each] + 1 for each in some}
    store.erase(erased, 1)
    store.finish(erased)
    store.close()
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert [each for each in erased if _secret_of(each) in content] == []
    assert all(_secret_of(each) in content for each in set(ids) - set(erased))


def _secret_of(fragment_id: str) -> bytes:
    return f"secret of {fragment_id}, ".encode()


REWRITING = """
import os, resource, sys, threading
from idgraph.model.store import FragmentWrite
from sinks.sqlite.profiles import SqliteProfileStore

store = SqliteProfileStore(sys.argv[1], str.encode)
for first in range(0, 400, 50):
    store.write([FragmentWrite(f"{number}", 0, bytes(250_000), frozenset()) for number in range(first, first + 50)])
store.erase(["1"], 5)
seen, ended = set(), threading.Event()

def watch():
    while not ended.wait(0.001):
        for each in os.listdir("/proc/self/fd"):
            try:
                seen.add(os.readlink(f"/proc/self/fd/{each}"))
            except FileNotFoundError:
                pass

watching = threading.Thread(target=watch)
watching.start()
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (60 << 20), -1))
store.finish(["1"])
ended.set()
watching.join()
assert store.unfinished() == []
temporary = {os.path.dirname(each) for each in seen if "etilqs" in each}
assert temporary == {os.path.dirname(sys.argv[1])}, temporary
"""


@pytest.mark.process
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs Linux's limits and /proc")
def test_a_file_larger_than_memory_is_written_anew(tmp_path: Path) -> None:
    """An erasure in it never ended, and no flow started that would have finished it; and beside itself, where room for it
    was planned and nobody else looks."""
    folder = tmp_path / "it's a folder"
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", REWRITING, str(folder / "profiles.db")],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "SQLITE_TMPDIR"},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert (folder / "profiles.db").stat().st_size > 90 << 20


def test_within_one_snapshot_a_read_that_fails_is_not_repeated_outside_of_it(tmp_path: Path) -> None:
    store = SqliteProfileStore(tmp_path / "profiles.db")
    tries = []

    def refused(connection: sqlite3.Connection) -> None:
        tries.append(connection)
        connection.execute("SELECT * FROM nothing")

    with store._file.consistent_read(), pytest.raises(StoreError, match="SQLite refused"):
        store._file.read(refused)
    assert len(tries) == 1
    store.close()


def test_rows_that_are_given_up_outlive_their_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interruption closes the connection first."""
    failed: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", failed.append)
    connection = sqlite3.connect(":memory:")
    connection.execute("CREATE TABLE numbers (number)")
    connection.executemany("INSERT INTO numbers VALUES (?)", [(1,), (2,), (3,)])
    rows = among(connection, "SELECT number FROM numbers WHERE number", [1, 2, 3])
    assert next(rows) == (1,)
    connection.close()
    del rows
    gc.collect()
    assert failed == []
