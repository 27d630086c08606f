"""The ledger in the profile store's file, each function within one transaction of the caller's.

A fragment that was assigned has its name beside it, so that a name leads back to the fragment as long as that exists.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from idgraph.model.errors import QueryError
from idgraph.model.ledger import Crossing, LedgerEntry
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
CROSSINGS = (
    "ALTER TABLE ledger ADD COLUMN segment TEXT",
    "CREATE UNIQUE INDEX crossings ON ledger (fragment, segment, epoch) WHERE segment IS NOT NULL",
    "CREATE INDEX ledger_by_segment ON ledger (segment, position) WHERE segment IS NOT NULL",
)
"""A crossing has its number as epoch."""
_COLUMNS = "at_ms, fragment, epoch, previous, profile, CAST(position AS TEXT)"


def add(connection: sqlite3.Connection, entries: Iterable[LedgerEntry]) -> None:
    """Append entries."""
    connection.executemany(
        "INSERT INTO ledger (at_ms, fragment, epoch, previous, profile) VALUES (?, ?, ?, ?, ?)",
        [each[:5] for each in entries],
    )


def after(
    connection: sqlite3.Connection, cursor: str, limit: int, segment: str | None
) -> list[LedgerEntry | Crossing]:
    """A page of all entries. Raises QueryError."""
    if not (cursor or "0").isdecimal():
        raise QueryError("this is no cursor of the ledger")
    which = "" if segment is None else " AND segment = :segment"
    query = (
        f"SELECT {_COLUMNS}, segment FROM ledger WHERE position > :after{which} "  # noqa: S608 - ours
        "ORDER BY position LIMIT :limit"
    )
    given = {"after": int(cursor or "0"), "limit": limit, "segment": segment}
    return [
        LedgerEntry._make(row) if name is None else Crossing(row[0], row[1], name, row[2], row[5])
        for *row, name in connection.execute(query, given)
    ]


def cross(
    connection: sqlite3.Connection, name: Callable[[str], bytes], crossings: Iterable[Crossing]
) -> None:
    """Append crossings, and let the names of their profiles lead back."""
    for at_ms, profile, segment, number, _ in crossings:
        given = {"name": name(str(profile)), "id": profile, "at": at_ms, "segment": segment, "number": number}
        connection.execute(
            "INSERT OR IGNORE INTO ledger (at_ms, fragment, epoch, previous, profile, segment) "
            "VALUES (:at, :name, :number, x'', x'', :segment)",
            given,
        )
        connection.execute("UPDATE fragments SET name = :name WHERE id = :id AND name IS NULL", given)


def crossed(connection: sqlite3.Connection, ids: Mapping[bytes, str]) -> dict[str, dict[str, int]]:
    """The last crossings of profiles, given by name."""
    query = "SELECT fragment, segment, MAX(epoch) FROM ledger WHERE segment IS NOT NULL AND fragment"
    found: dict[str, dict[str, int]] = {}
    for name, segment, number in _among(connection, query, list(ids), " GROUP BY fragment, segment"):
        found.setdefault(ids[name], {})[segment] = number
    return found


def of(connection: sqlite3.Connection, names: Sequence[bytes]) -> list[LedgerEntry]:
    """The entries of these fragments."""
    query = f"SELECT {_COLUMNS} FROM ledger WHERE segment IS NULL AND fragment"  # noqa: S608 - ours
    found = sorted(_among(connection, query, names), key=lambda row: int(row[5]))
    return [LedgerEntry._make(row) for row in found]


def named(connection: sqlite3.Connection, names: Sequence[bytes]) -> dict[bytes, str]:
    """The ids of fragments with these names."""
    return dict(_among(connection, "SELECT name, id FROM fragments WHERE name", names))


def _among(
    connection: sqlite3.Connection, query: str, names: Sequence[bytes], rest: str = ""
) -> Iterator[Any]:
    for chunk in chunks(names):
        yield from connection.execute(f"{query} IN ({marks(len(chunk))}){rest}", chunk)
