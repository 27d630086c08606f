"""One SQLite file, shared by threads and processes: connections, transactions, retries, errors.

SQLite keeps file locks and their bookkeeping by process: a child that inherits an open connection believes in locks that it
does not hold. So a process that has opened a store must not be forked and go on with it. PySpark forks its workers before
they open anything; a reader that somebody forks refuses to answer (`idgraph/app/reader.py`).
"""

from __future__ import annotations

import os
import sqlite3
import threading
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from idgraph.model.backoff import Backoff, Retries
from idgraph.model.database_errors import BUSY, code_of, reason_of
from idgraph.model.errors import IdgraphError
from sinks.sqlite.schema import Schema, create_private, prepare

T = TypeVar("T")

CHUNK = 500
"""The number of values in one IN list."""

# SQLite itself waits for a lock (see sqlite_connections); some of its answers come without waiting.
_RETRY_SECONDS = 30
_BUSY = Backoff(base=0.02, cap=0.4, least=0.25)
_TURNS = Backoff(base=0.002, cap=0.002, least=0.25)
"""Between questions for the write lock."""


class SqliteFile:
    """Runs units of work, each in one transaction. Safe for several threads and processes.

    `error` is what is raised instead of sqlite3's errors, `unstorable` where a value is the cause and waiting is of
    no use; the message names the file, never a value.
    Nothing is opened before the first use.
    """

    def __init__(
        self,
        path: str | Path,
        schema: Schema,
        error: type[IdgraphError],
        unstorable: type[IdgraphError] | None = None,
        remedy: str = "restore it from a backup",
    ) -> None:
        """`remedy` is what to do about a damaged file."""
        self.path = Path(path)
        self._error = error
        self._unstorable = unstorable or error
        self._remedy = remedy
        self._connections = Connections(self.path, schema, error)
        self._own = threading.local()
        self._watching = threading.Lock()
        self._stack = ExitStack()
        self._watch: sqlite3.Connection | None = None
        """Its counter counts what others commit: it writes nothing."""

    def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on one snapshot of the file."""
        connection: sqlite3.Connection | None = self._own.__dict__.get("connection")
        if connection is None:
            return self._run(_reading, work)
        try:
            return work(connection)
        except sqlite3.Error as error:
            # After others SQLite has ended the transaction.
            if code_of(error) not in BUSY:
                raise self._explained(error) from None
        except (UnicodeEncodeError, OverflowError):
            pass
        # Once more, with patience, and explained.
        return self._run(nullcontext, work, lambda: nullcontext(connection))

    @contextmanager
    def consistent_read(self) -> Iterator[None]:
        """All that this thread reads within it is of one snapshot of the file, in one transaction."""
        with ExitStack() as stack:
            if "connection" not in self._own.__dict__:
                self._own.connection = self._run(
                    lambda connection: _kept(stack, _reading(connection)),
                    lambda connection: connection,
                    lambda: _kept(stack, self._connections.lend()),
                )
                stack.callback(self._own.__dict__.clear)
            yield

    def changes(self) -> int:
        """A number that is another one after each commit, of any process. 3 us."""
        with self._watching:
            if self._watch is None:
                self._watch = self._run(
                    nullcontext, lambda found: found, lambda: _kept(self._stack, self._connections.lend())
                )
            try:
                return int(self._watch.execute("PRAGMA data_version").fetchone()[0])
            except sqlite3.Error as error:
                raise self._explained(error) from None

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` as the only writer; durable when it returns, without effect when it raises.

        `work` runs again from the start when another writer was in the way.
        """
        return self._run(_writing, work)

    @contextmanager
    def without_writers(self, work: Callable[[sqlite3.Connection], T]) -> Iterator[T]:
        """The result of `work`, which only reads. Nobody writes to the file within the context."""
        try:
            with ExitStack() as stack:
                yield self._run(
                    lambda connection: _kept(stack, _writing(connection)),
                    work,
                    lambda: _kept(stack, self._connections.lend()),
                )
        except sqlite3.Error as error:
            raise self._explained(error) from None

    def write_unflushed(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """As `write`, for what may be had again: a power cut soon after it may take it back. A crash of the process
        does not, nor a power cut after the next `write`."""
        return self._run(_writing_unflushed, work)

    def truncate_log(self) -> None:
        """Move the log into the file and empty it, so that deleted rows stand in neither.

        Tries again and again while others read, or move the log themselves, which SQLite does not wait for.
        Raises the file's error when one was in the way for too long.
        """

        def checkpoint(connection: sqlite3.Connection) -> int:
            return int(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])

        retries = Retries(_BUSY, _RETRY_SECONDS)
        while self._run(nullcontext, checkpoint):
            if not retries.pause():
                raise self._error(
                    f"{self.path}: deleted rows are still in the log, a reader holds it; delete again"
                )

    def rewrite(self) -> None:
        """Write the whole file again and empty the log, so that nothing deleted or replaced is in either: in the room
        that rows leave when they are moved from page to page, `secure_delete` lets their bytes stand. Takes the
        write lock for as long as writing it takes, seconds a gigabyte, and twice as much disk again as the file: in
        the log beside it, and in a temporary file of no name in the same folder, or where `SQLITE_TMPDIR` says.
        """
        self._run(nullcontext, _vacuum)
        self.truncate_log()

    def close(self) -> None:
        """Every later call raises. Closing twice is no error."""
        self._connections.close()
        with self._watching:
            self._stack.close()

    def _run(
        self,
        transaction: Callable[[sqlite3.Connection], AbstractContextManager[Any]],
        work: Callable[[sqlite3.Connection], T],
        lend: Callable[[], AbstractContextManager[sqlite3.Connection]] | None = None,
    ) -> T:
        retries = Retries(_BUSY, _RETRY_SECONDS)
        while True:
            try:
                with (lend or self._connections.lend)() as connection, transaction(connection):
                    return work(connection)
            except sqlite3.Error as error:
                if code_of(error) not in BUSY or not retries.pause():
                    raise self._explained(error) from None
            except (UnicodeEncodeError, OverflowError) as error:
                is_text = isinstance(error, UnicodeEncodeError)
                what = "text that is not valid Unicode" if is_text else "a number of more than 64 bits"
                raise self._unstorable(f"{self.path}: {what} cannot be stored") from None
            except OSError as error:
                raise self._error(f"{self.path}: {error.strerror or type(error).__name__}") from None

    def _explained(self, error: sqlite3.Error) -> IdgraphError:
        kind = self._unstorable if code_of(error) == "SQLITE_TOOBIG" else self._error
        return kind(f"{self.path}: {reason_of(error, self._remedy)}")


def _kept(stack: ExitStack, context: AbstractContextManager[T]) -> AbstractContextManager[T]:
    """A context that is left with the stack."""
    return nullcontext(stack.enter_context(context))


# A failure in one of these is not committed: its connection is closed, which takes the writes back.


@contextmanager
def _reading(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("BEGIN")
    yield
    connection.execute("COMMIT")


@contextmanager
def _writing(connection: sqlite3.Connection) -> Iterator[None]:
    _begin_write(connection)
    yield
    connection.execute("COMMIT")


@contextmanager
def _writing_unflushed(connection: sqlite3.Connection) -> Iterator[None]:
    connection.execute("PRAGMA synchronous = NORMAL")
    with _writing(connection):
        yield
    connection.execute("PRAGMA synchronous = FULL")


def _begin_write(connection: sqlite3.Connection) -> None:
    # SQLite's own waiting sleeps ever longer, up to 100 ms, so of several busy writers one may starve for
    # seconds. Asking every millisecond or so gives each its chance.
    patience = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute("PRAGMA busy_timeout = 0")
    retries = Retries(_TURNS, _RETRY_SECONDS)
    while True:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if code_of(error) not in BUSY or not retries.pause():
                raise
        else:
            break
    connection.execute(f"PRAGMA busy_timeout = {patience}")


def _vacuum(connection: sqlite3.Connection) -> None:
    # In memory, as all else that is temporary, a file larger than that could never be rewritten. It holds for
    # the whole process; SQLite's own choice may be a small disk, or one that is less well kept than that of the
    # profiles.
    if "SQLITE_TMPDIR" not in os.environ:
        file = connection.execute("PRAGMA database_list").fetchone()[2]
        folder = str(Path(file).parent).replace("'", "''")
        connection.execute(f"PRAGMA temp_store_directory = '{folder}'")
    connection.execute("PRAGMA temp_store = FILE")
    try:
        connection.execute("VACUUM")
    finally:
        connection.execute("PRAGMA temp_store = MEMORY")


def among(
    connection: sqlite3.Connection, query: str, values: Collection[Any], rest: str = ""
) -> Iterator[Any]:
    """The rows whose column, with which the query ends, has one of these values."""
    listed = values if isinstance(values, list) else list(values)
    chunks = (listed[start : start + CHUNK] for start in range(0, len(listed), CHUNK))
    # No `yield from`: it closes a cursor that is given up, which fails when an interruption has closed the connection.
    return chain.from_iterable(
        connection.execute(f"{query} IN ({marks(len(chunk))}){rest}", chunk) for chunk in chunks
    )


def marks(number: int) -> str:
    """`?,?,?` for an IN list."""
    return ",".join("?" * number)


_BUSY_SECONDS = 20
_MOST_IDLE = 8

# Python looks for an adapter of each value that is no plain number or text, and makes two errors where it finds none: a
# microsecond a row.
sqlite3.register_adapter(bytes, bytes)
sqlite3.register_adapter(bool, int)

# Creating a file and closing its descriptor must not meet a connection that locks the same file.
_creating = threading.Lock()


class Connections:
    """A pool that grows to as many connections as there are units of work at once.

    `lend` raises `refusal` when closed and for a file that may not be used, else sqlite3.Error or OSError.
    """

    def __init__(self, path: Path, schema: Schema, refusal: type[IdgraphError]) -> None:
        self._path = path
        self._schema = schema
        self._refusal = refusal
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._lock = threading.Lock()
        # From Python 3.13 on, connections that nobody closed are warned of.
        weakref.finalize(self, _close_all, self._idle).atexit = False

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """A connection for one unit of work; an error closes it, which rolls back what it had begun."""
        with self._lock:
            if self._closed:
                raise self._refusal(f"{self._path}: is closed")
            connection = self._idle.pop() if self._idle else None
        if connection is None:
            connection = self._open()
        try:
            yield connection
        except BaseException:
            connection.close()
            raise
        with self._lock:
            is_kept = not self._closed and len(self._idle) < _MOST_IDLE
            if is_kept:
                self._idle.append(connection)
        if not is_kept:
            connection.close()

    def close(self) -> None:
        """Close idle connections now and lent ones when they come back."""
        with self._lock:
            self._closed = True
            _close_all(self._idle)

    def _open(self) -> sqlite3.Connection:
        with _creating:
            create_private(self._path)
            connection = sqlite3.connect(
                self._path,
                timeout=_BUSY_SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            prepare(connection, self._path, self._schema, self._refusal)
        except BaseException:
            connection.close()
            raise
        return connection


def _close_all(connections: list[sqlite3.Connection]) -> None:
    while connections:
        connections.pop().close()
