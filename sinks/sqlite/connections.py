"""Connections to one SQLite file, lent out one unit of work at a time.

SQLite keeps file locks and their bookkeeping by process: a child that inherits an open connection believes in locks that it
does not hold. So a process that has opened a store must not be forked and go on with it. PySpark forks its workers before
they open anything; a reader that somebody forks refuses to answer (`idgraph/app/reader.py`).
"""

from __future__ import annotations

import sqlite3
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from idgraph.model.errors import IdgraphError
from sinks.sqlite.schema import Schema, create_private, prepare

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
