"""The ledger in the profile store's file.

A fragment that was assigned has its name beside it, so that a name leads back to the fragment as long as that exists.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast

from idgraph.model.errors import QueryError
from idgraph.model.ledger import CHANGES, Cause, Crossing, LedgerEntry
from sinks.sqlite.database import among
from sinks.sqlite.tombstones import SqliteTables

TABLES = (
    """CREATE TABLE ledger (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        at_ms INTEGER NOT NULL,
        fragment BLOB NOT NULL,
        epoch INTEGER NOT NULL,
        previous BLOB NOT NULL,
        profile BLOB NOT NULL,
        segment TEXT)""",
    "CREATE INDEX ledger_by_fragment ON ledger (fragment)",
    "CREATE UNIQUE INDEX crossings ON ledger (fragment, segment, epoch) WHERE segment IS NOT NULL",
    "CREATE INDEX ledger_by_segment ON ledger (segment, position) WHERE segment IS NOT NULL",
)
"""A crossing has its number as epoch, a change the version; `previous` is its cause."""
_COLUMNS = "at_ms, fragment, epoch, previous, profile, CAST(position AS TEXT)"


def add(connection: sqlite3.Connection, entries: Iterable[LedgerEntry]) -> None:
    """Append entries, within a transaction of the caller's."""
    connection.executemany(
        "INSERT INTO ledger (at_ms, fragment, epoch, previous, profile) VALUES (?, ?, ?, ?, ?)",
        [each[:5] for each in entries],
    )


class SqliteLedger(SqliteTables):
    """`Ledger` says what the methods promise."""

    def ledger(
        self, after: str = "", limit: int = 1000, segment: str | None = None, has_changes: bool = True
    ) -> list[LedgerEntry | Crossing]:
        if not (after or "0").isdecimal():
            raise QueryError("this is no cursor of the ledger")
        unchanged = "" if has_changes else f" AND (segment IS NULL OR segment NOT LIKE '%{CHANGES}')"
        which = unchanged if segment is None else " AND segment = :segment"
        query = (
            f"SELECT {_COLUMNS}, segment FROM ledger WHERE position > :after{which} "  # noqa: S608 - ours
            "ORDER BY position LIMIT :limit"
        )
        given = {"after": int(after or "0"), "limit": limit}
        segments = [segment] if segment is None or not has_changes else [segment, segment + CHANGES]
        rows = self._file.read(
            lambda connection: [
                row for each in segments for row in connection.execute(query, given | {"segment": each})
            ]
        )
        return [
            LedgerEntry._make(row) if name is None else _crossing(row, name)
            for *row, name in sorted(rows, key=lambda row: int(row[5]))[:limit]
        ]

    def ledger_end(self, after: str) -> str:
        query = "SELECT CAST(MAX(position) AS TEXT) FROM ledger"
        return self._file.read(lambda connection: connection.execute(query).fetchone()[0]) or after

    def cross(self, crossings: Sequence[Crossing]) -> None:
        def append_crossings(connection: sqlite3.Connection) -> None:
            for each in crossings:
                row = {
                    "name": self._tombstones.name(str(each.profile)),
                    "id": each.profile,
                    "at": each.at_ms,
                    "segment": each.segment,
                    "number": each.number,
                    "cause": each.cause.encode(),
                }
                if each.is_change:
                    earlier = (
                        "DELETE FROM ledger WHERE fragment = :name AND segment = :segment AND epoch < :number"
                    )
                    connection.execute(earlier, row)
                connection.execute(
                    "INSERT OR IGNORE INTO ledger (at_ms, fragment, epoch, previous, profile, segment) "
                    "VALUES (:at, :name, :number, :cause, x'', :segment)",
                    row,
                )
                # The name leads back to the profile, too.
                connection.execute("UPDATE fragments SET name = :name WHERE id = :id AND name IS NULL", row)

        self._file.write(append_crossings)

    def crossed(self, fragment_ids: Sequence[str]) -> dict[str, dict[str, int]]:
        ids = {self._tombstones.name(each): each for each in fragment_ids}
        query = "SELECT fragment, segment, MAX(epoch) FROM ledger WHERE segment IS NOT NULL AND fragment"
        found: dict[str, dict[str, int]] = {}
        for name, segment, number in self._among(query, list(ids), " GROUP BY fragment, segment"):
            found.setdefault(ids[name], {})[segment] = number
        return found

    def ledger_of(self, fragment_ids: Sequence[str]) -> list[LedgerEntry]:
        query = f"SELECT {_COLUMNS} FROM ledger WHERE segment IS NULL AND fragment"  # noqa: S608 - ours
        found = self._among(query, list(map(self._tombstones.name, fragment_ids)))
        return [LedgerEntry._make(row) for row in sorted(found, key=lambda row: int(row[5]))]

    def fragments_named(self, names: Collection[bytes]) -> dict[bytes, str]:
        return dict(self._among("SELECT name, id FROM fragments WHERE name", list(names)))

    def _among(self, query: str, names: Sequence[bytes], rest: str = "") -> list[Any]:
        """The rows whose name, by which the query ends, is one of these."""
        return self._file.read(lambda connection: list(among(connection, query, names, rest)))


def _crossing(row: Sequence[Any], segment: str) -> Crossing:
    at_ms, name, number, cause, _, cursor = row
    return Crossing(at_ms, name, segment, number, cursor, cast("Cause", cause.decode()))
