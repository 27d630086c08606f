"""Households in one SQLite file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection
from pathlib import Path

from idgraph.model import canonical
from idgraph.model.errors import StoreError
from idgraph.model.households import Decide, HouseholdEntry
from sinks.sqlite.database import SqliteFile, among, marks
from sinks.sqlite.schema import Schema

_COLUMNS = "household, member, person, key, at_ms, kind, body"
_SCHEMA = Schema(
    application_id=0x69646768,
    migrations=(
        (
            """CREATE TABLE entries (
                number INTEGER PRIMARY KEY,
                household TEXT NOT NULL,
                member TEXT NOT NULL,
                person TEXT NOT NULL,
                key TEXT NOT NULL,
                at_ms INTEGER NOT NULL,
                kind TEXT NOT NULL,
                body TEXT NOT NULL)""",
            "CREATE INDEX entries_by_household ON entries (household, number)",
            "CREATE INDEX entries_by_person ON entries (key)",
            "CREATE TRIGGER entries_update BEFORE UPDATE ON entries "
            "BEGIN SELECT RAISE(ABORT, 'entries are append-only'); END",
        ),
    ),
)


class SqliteHouseholdLog:
    """`HouseholdLog` in one file, made when first used, for the owner only."""

    def __init__(self, path: Path) -> None:
        self._file = SqliteFile(path, _SCHEMA, StoreError)

    def append(self, household: str, decide: Decide) -> None:
        def append_entries(connection: sqlite3.Connection) -> None:
            rows = [
                (*entry[:-1], canonical.encode(dict(entry.body)).decode())
                for entry in decide(_entries(connection, household))
            ]
            connection.executemany(
                f"INSERT INTO entries ({_COLUMNS}) VALUES ({marks(len(HouseholdEntry._fields))})",  # noqa: S608 - ours only
                rows,
            )

        self._file.write(append_entries)

    def read(self, household: str) -> list[HouseholdEntry]:
        return self._file.read(lambda connection: _entries(connection, household))

    def households(self) -> list[str]:
        """All of them, sorted."""
        query = "SELECT DISTINCT household FROM entries ORDER BY household"
        return self._file.read(lambda connection: [row[0] for row in connection.execute(query).fetchall()])

    def of(self, keys: Collection[str]) -> list[str]:
        query = "SELECT household FROM entries WHERE key"
        return self._file.read(lambda connection: sorted({row[0] for row in among(connection, query, keys)}))

    def erase(self, keys: Collection[str]) -> int:
        rows = [(each,) for each in keys]
        gone = self._file.write(
            lambda connection: connection.executemany("DELETE FROM entries WHERE key = ?", rows).rowcount
        )
        if gone:
            self._file.rewrite()
        return gone

    def close(self) -> None:
        self._file.close()


def _entries(connection: sqlite3.Connection, household: str) -> list[HouseholdEntry]:
    found = connection.execute(
        f"SELECT {_COLUMNS} FROM entries WHERE household = ? ORDER BY number",  # noqa: S608 - ours only
        (household,),
    )
    return [HouseholdEntry._make([*row[:-1], json.loads(row[-1])]) for row in found.fetchall()]
