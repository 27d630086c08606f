"""Tombstones in a table of an SQLite file, beside what they keep from coming back.

`names` makes the keyed hash of a fragment's id. Each function runs within the caller's transaction.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping

from idgraph.model.errors import IdgraphError
from idgraph.model.tombstones import Tombstone, TombstoneNames
from sinks.sqlite.database import SqliteFile, among

TABLE = """CREATE TABLE tombstones (
    name BLOB PRIMARY KEY,
    until INTEGER NOT NULL,
    version INTEGER NOT NULL) WITHOUT ROWID"""


class SqliteTombstones:
    """The tombstones of one file. Without `names` none can be set or matched: a file that has some is
    refused with `refusal`, rather than used as if it had none."""

    def __init__(self, names: TombstoneNames | None, refusal: type[IdgraphError]) -> None:
        self._names = names
        self._refusal = refusal

    def name(self, fragment_id: str) -> bytes:
        """Raises `refusal` without `names`."""
        if self._names is None:
            raise self._refusal(
                "the store has tombstones or a ledger and was opened without the key that they need"
            )
        return self._names(fragment_id)

    def find(self, connection: sqlite3.Connection, ids: Iterable[str]) -> dict[str, Tombstone]:
        """Those of these ids. One look when there is none at all: `ids` is not touched then."""
        if not are_there(connection):
            return {}
        ids_of = {self.name(each): each for each in ids}
        query = "SELECT name, until, version FROM tombstones WHERE name"
        return {ids_of[row[0]]: Tombstone(row[1], row[2]) for row in among(connection, query, list(ids_of))}

    def join(self, connection: sqlite3.Connection, tombstones: Mapping[str, Tombstone]) -> None:
        """Set tombstones by fragment id; of two the later `until` and the higher version stay."""
        by_name = {self.name(each): value for each, value in tombstones.items()}
        join_by_name(connection, by_name)


def are_there(connection: sqlite3.Connection) -> bool:
    """Whether there is any."""
    return connection.execute("SELECT 1 FROM tombstones LIMIT 1").fetchone() is not None


def join_by_name(connection: sqlite3.Connection, tombstones: Mapping[bytes, Tombstone]) -> None:
    """The same, by name."""
    connection.executemany(
        "INSERT INTO tombstones VALUES (?, ?, ?) ON CONFLICT (name) DO UPDATE "
        "SET until = max(until, excluded.until), version = max(version, excluded.version)",
        [(name, *tombstone) for name, tombstone in sorted(tombstones.items())],
    )


def all_by_name(connection: sqlite3.Connection) -> dict[bytes, Tombstone]:
    """All tombstones."""
    rows = connection.execute("SELECT name, until, version FROM tombstones")
    return {row[0]: Tombstone(row[1], row[2]) for row in rows}


class SqliteTables:
    """The file of a profile store, and its tombstones."""

    def __init__(self, file: SqliteFile, tombstones: SqliteTombstones) -> None:
        self._file = file
        self._tombstones = tombstones
