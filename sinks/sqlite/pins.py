"""Pins in the profile store's file, each function within one transaction of the caller's."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from idgraph.model.pins import PinRecord
from sinks.sqlite.database import chunks, marks

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


def add(connection: sqlite3.Connection, pins: Sequence[PinRecord]) -> None:
    """Keep decisions."""
    connection.executemany("INSERT OR IGNORE INTO pins VALUES (?, ?, ?, ?, ?, ?)", pins)


def of(connection: sqlite3.Connection, identifiers: Sequence[str]) -> list[PinRecord]:
    """Decisions on pairs with one of these identifiers."""
    # Mostly there are none at all.
    if connection.execute("SELECT 1 FROM pins LIMIT 1").fetchone() is None:
        return []
    found = {
        PinRecord._make(row)
        for chunk in chunks(identifiers)
        for side in ("low", "high")
        for row in connection.execute(
            f"SELECT * FROM pins WHERE {side} IN ({marks(len(chunk))})",  # noqa: S608 - our names, marks only
            chunk,
        )
    }
    return list(found)


def after(connection: sqlite3.Connection, last: PinRecord | None, limit: int) -> list[PinRecord]:
    """A page of all decisions."""
    query = (
        "SELECT * FROM pins WHERE (low, high, at_ms, decision, who, why) > (?, ?, ?, ?, ?, ?) "
        "ORDER BY low, high, at_ms, decision, who, why LIMIT ?"
    )
    begin = last or PinRecord("", "", -(2**63), "")
    return [PinRecord._make(row) for row in connection.execute(query, (*begin, limit))]


def drop(connection: sqlite3.Connection, identifiers: Sequence[str]) -> None:
    """Forget decisions on pairs with one of these identifiers."""
    rows = [(each,) for each in identifiers]
    connection.executemany("DELETE FROM pins WHERE low = ?", rows)
    connection.executemany("DELETE FROM pins WHERE high = ?", rows)
