"""Pins in the profile store's file."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from functools import partial

from idgraph.model.pins import PinRecord
from sinks.sqlite.database import among
from sinks.sqlite.tombstones import SqliteTables

TABLES = (
    """CREATE TABLE pins (
        low TEXT NOT NULL,
        high TEXT NOT NULL,
        at_ms INTEGER NOT NULL,
        decision TEXT NOT NULL,
        who TEXT NOT NULL,
        why TEXT NOT NULL,
        PRIMARY KEY (low, high, at_ms, decision, who, why)) WITHOUT ROWID""",
    "CREATE INDEX pins_by_high ON pins (high)",
)


class SqlitePins(SqliteTables):
    """`Pins` says what the methods promise."""

    def add_pins(self, pins: Sequence[PinRecord]) -> None:
        if pins:
            statement = "INSERT OR IGNORE INTO pins VALUES (?, ?, ?, ?, ?, ?)"
            self._file.write(lambda connection: connection.executemany(statement, pins))

    def pins_of(self, identifiers: Sequence[str]) -> list[PinRecord]:
        return self._file.read(lambda connection: _of(connection, identifiers))

    def pins(self) -> Iterator[PinRecord]:
        query = (
            "SELECT * FROM pins WHERE (low, high, at_ms, decision, who, why) > (?, ?, ?, ?, ?, ?) "
            "ORDER BY low, high, at_ms, decision, who, why LIMIT 1000"
        )
        last = PinRecord("", "", -(2**63), "")
        while page := self._file.read(partial(_page, query, last)):
            yield from page
            last = page[-1]

    def drop_pins(self, identifiers: Sequence[str]) -> None:
        def delete_pins(connection: sqlite3.Connection) -> None:
            rows = [(each,) for each in identifiers]
            connection.executemany("DELETE FROM pins WHERE low = ?", rows)
            connection.executemany("DELETE FROM pins WHERE high = ?", rows)

        if identifiers:
            self._file.write(delete_pins)


def are_there(connection: sqlite3.Connection) -> bool:
    """Whether there is any: mostly there is none."""
    return connection.execute("SELECT 1 FROM pins LIMIT 1").fetchone() is not None


def _of(connection: sqlite3.Connection, identifiers: Sequence[str]) -> list[PinRecord]:
    if not are_there(connection):
        return []
    found = {
        PinRecord._make(row)
        for side in ("low", "high")
        for row in among(connection, f"SELECT * FROM pins WHERE {side}", identifiers)  # noqa: S608 - our names
    }
    return list(found)


def _page(query: str, last: PinRecord, connection: sqlite3.Connection) -> list[PinRecord]:
    return [PinRecord._make(row) for row in connection.execute(query, last)]
