"""Connections to one SQLite file, lent out one unit of work at a time, and none of them open over a fork.

SQLite keeps file locks and their bookkeeping by process: a child that inherits an open connection would
believe in locks it does not hold, and could delete the log under its parent. So before a fork every
connection that this module opened is closed, and each side opens its own again.
"""

from __future__ import annotations

import os
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
_FORK_WAIT_SECONDS = 60

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
        self._lent = 0
        self._closed = False
        self._forking = False
        self._changed = threading.Condition()
        _live.add(self)
        # From Python 3.13 on, connections that nobody closed are warned of.
        weakref.finalize(self, _close_all, self._idle).atexit = False

    @contextmanager
    def lend(self) -> Iterator[sqlite3.Connection]:
        """A connection for one unit of work; an error closes it, which rolls back what it had begun."""
        with self._changed:
            self._changed.wait_for(lambda: not self._forking)
            if self._closed:
                raise self._refusal(f"{self._path}: is closed")
            self._lent += 1
            connection = self._idle.pop() if self._idle else None
        try:
            if connection is None:
                connection = self._open()
            yield connection
        except BaseException:
            self._back(connection, keep=False)
            raise
        self._back(connection, keep=True)

    def close(self) -> None:
        """Close idle connections now and lent ones when they come back."""
        with self._changed:
            self._closed = True
            _close_all(self._idle)

    def before_fork(self) -> None:
        """Wait until nothing is lent, then close all; nothing is lent until `after_fork`."""
        self._changed.acquire()
        self._forking = True
        self._changed.wait_for(lambda: self._lent == 0, _FORK_WAIT_SECONDS)
        _close_all(self._idle)

    def after_fork_in_parent(self) -> None:
        self._forking = False
        self._changed.notify_all()
        self._changed.release()

    def after_fork_in_child(self) -> None:
        # Other threads, and what they waited for, are not in the child.
        self._changed = threading.Condition()
        self._forking = False
        self._lent = 0

    def _back(self, connection: sqlite3.Connection | None, keep: bool) -> None:
        with self._changed:
            self._lent -= 1
            self._changed.notify_all()
            if connection is not None:
                if keep and not self._closed and len(self._idle) < _MOST_IDLE:
                    self._idle.append(connection)
                else:
                    connection.close()

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


_live: weakref.WeakSet[Connections] = weakref.WeakSet()
_forking: list[Connections] = []


def _before_fork() -> None:
    _forking.extend(_live)
    for connections in _forking:
        connections.before_fork()
    # Last: who holds it is lent something, and that has been waited for.
    _creating.acquire()


def _after_fork_in_parent() -> None:
    _creating.release()
    while _forking:
        _forking.pop().after_fork_in_parent()


def _after_fork_in_child() -> None:
    _creating.release()
    while _forking:
        _forking.pop().after_fork_in_child()


os.register_at_fork(
    before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child
)
