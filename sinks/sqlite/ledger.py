"""The ledger in the profile store's file, each function within one transaction of the caller's.

A fragment that was assigned has its name beside it, so that a name leads back to the fragment as long as that exists.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from idgraph.model.errors import QueryError
from idgraph.model.ledger import LedgerEntry
from sinks.sqlite.database import chunks, marks

TABLES = (
    """CREATE TABLE ledger (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        at_ms INTEGER NOT NULL,
        fragment BLOB NOT NULL,
        epoch INTEGER NOT NULL,
        previous BLOB NOT NULL,
        profile BLOB NOT NULL)""",
    "CREATE INDEX ledger_by_fragment ON ledger (fragment)",
    "ALTER TABLE fragments ADD COLUMN name BLOB",
    "CREATE INDEX fragments_by_name ON fragments (name) WHERE name IS NOT NULL",
)
_COLUMNS = "at_ms, fragment, epoch, previous, profile, CAST(position AS TEXT)"


def add(connection: sqlite3.Connection, entries: Iterable[LedgerEntry]) -> None:
    """Append entries."""
    connection.executemany(
        "INSERT INTO ledger (at_ms, fragment, epoch, previous, profile) VALUES (?, ?, ?, ?, ?)",
        [each[:5] for each in entries],
    )


def after(connection: sqlite3.Connection, cursor: str, limit: int) -> list[LedgerEntry]:
    """A page of all entries. Raises QueryError."""
    if not (cursor or "0").isdecimal():
        raise QueryError("this is no cursor of the ledger")
    query = f"SELECT {_COLUMNS} FROM ledger WHERE position > ? ORDER BY position LIMIT ?"  # noqa: S608 - ours
    return [LedgerEntry._make(row) for row in connection.execute(query, (int(cursor or "0"), limit))]


def of(connection: sqlite3.Connection, names: Sequence[bytes]) -> list[LedgerEntry]:
    """The entries of these fragments."""
    query = f"SELECT {_COLUMNS} FROM ledger WHERE fragment"  # noqa: S608 - ours
    found = sorted(_among(connection, query, names), key=lambda row: int(row[5]))
    return [LedgerEntry._make(row) for row in found]


def named(connection: sqlite3.Connection, names: Sequence[bytes]) -> dict[bytes, str]:
    """The ids of fragments with these names."""
    return dict(_among(connection, "SELECT name, id FROM fragments WHERE name", names))


def _among(connection: sqlite3.Connection, query: str, names: Sequence[bytes]) -> Iterator[Any]:
    for chunk in chunks(names):
        yield from connection.execute(f"{query} IN ({marks(len(chunk))})", chunk)
