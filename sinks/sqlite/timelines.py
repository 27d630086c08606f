"""Pages of timelines and due entries in the profile store's file, by the number of their fragment.

A rowid table for the pages: beside WITHOUT ROWID a write costs 0.6 of it, and reading a person with large pages a tenth
(docs/adr/0002-profile-store.md).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from itertools import chain

from idgraph.model.store import FragmentWrite
from idgraph.model.timelines import BEGINNING, EVERY_DAY, DueEntry, PageKey, Since
from sinks.sqlite import outbox
from sinks.sqlite.database import among, marks
from sinks.sqlite.tombstones import SqliteTables

TABLES = (
    """CREATE TABLE timelines (
        fragment INTEGER NOT NULL,
        activity TEXT NOT NULL,
        day INTEGER NOT NULL,
        entries BLOB NOT NULL,
        PRIMARY KEY (fragment, activity, day))""",
    """CREATE TABLE due (
        fragment INTEGER PRIMARY KEY,
        at_ms INTEGER NOT NULL,
        version INTEGER NOT NULL)""",
    "CREATE INDEX due_by_moment ON due (at_ms)",
)


class SqliteTimelines(SqliteTables):
    """`Timelines` says what the methods promise."""

    def pages(self, keys: Collection[tuple[str, PageKey]]) -> dict[tuple[str, PageKey], bytes]:
        def read_pages(connection: sqlite3.Connection) -> dict[tuple[str, PageKey], bytes]:
            query = "SELECT entries FROM timelines WHERE fragment = ? AND activity = ? AND day = ?"
            numbers = _numbers(connection, {each for each, _ in keys})
            found = (
                (key, connection.execute(query, (numbers[key[0]], *key[1])).fetchone())
                for key in keys
                if key[0] in numbers
            )
            return {key: row[0] for key, row in found if row is not None}

        return self._file.read(read_pages) if keys else {}

    def timelines(
        self, ids: Collection[str], activities: Collection[str] | None = None, since: Since = EVERY_DAY
    ) -> dict[str, dict[PageKey, bytes]]:
        def read_timelines(connection: sqlite3.Connection) -> dict[str, dict[PageKey, bytes]]:
            bounds = list(chain.from_iterable(since.items()))
            cut = "activity = ? AND day < ? OR " * len(since)
            query = f"SELECT activity, day, iif({cut}FALSE, substr(entries, 1, {BEGINNING}), entries) "
            query += "FROM timelines WHERE fragment = ?"
            if activities is not None:
                query += f" AND activity IN ({marks(len(activities))})"
            found = {
                fragment_id: connection.execute(query, (*bounds, number, *(activities or ()))).fetchall()
                for fragment_id, number in _numbers(connection, ids).items()
            }
            return {
                fragment_id: {PageKey(activity, day): entries for activity, day, entries in rows}
                for fragment_id, rows in found.items()
                if rows
            }

        return self._file.read(read_timelines) if ids else {}

    def plan(self, due: Collection[DueEntry]) -> None:
        def replace_entries(connection: sqlite3.Connection) -> None:
            numbers = _numbers(connection, {each.fragment_id for each in due})
            present = [(numbers[each[0]], *each[1:]) for each in due if each.fragment_id in numbers]
            connection.executemany(
                "INSERT INTO due VALUES (?, ?, ?) ON CONFLICT (fragment) DO UPDATE "
                "SET at_ms = excluded.at_ms, version = excluded.version WHERE version <= excluded.version",
                [row for row in present if row[1]],
            )
            connection.executemany(
                "DELETE FROM due WHERE fragment = ? AND version <= ?",
                [(number, version) for number, at_ms, version in present if not at_ms],
            )

        if due:
            self._file.write(replace_entries)

    def take_due(self, now_ms: int, limit: int) -> int:
        def move_entries(connection: sqlite3.Connection) -> int:
            rows = connection.execute(_DUE, (now_ms, limit)).fetchall()
            connection.executemany("UPDATE fragments SET version = version + 1 WHERE number = ?", rows)
            connection.executemany("DELETE FROM due WHERE fragment = ?", rows)
            query = "SELECT id, version FROM fragments WHERE number"
            outbox.add(connection, list(among(connection, query, [number for (number,) in rows])))
            return len(rows)

        # Nobody else waits for the lock where nothing is due.
        if not self._file.read(lambda connection: connection.execute(_DUE, (now_ms, 1)).fetchone()):
            return 0
        return self._file.write(move_entries)


_DUE = "SELECT fragment FROM due WHERE at_ms <= ? ORDER BY at_ms LIMIT ?"


def write(connection: sqlite3.Connection, written: Sequence[tuple[int, FragmentWrite]]) -> None:
    """Write the pages of fragments, by number, and remove those that have expired."""
    pages = [(number, *key, page) for number, write in written for key, page in write.pages.items()]
    connection.executemany(
        "INSERT INTO timelines VALUES (?, ?, ?, ?) "
        "ON CONFLICT (fragment, activity, day) DO UPDATE SET entries = excluded.entries",
        [row for row in pages if row[-1]],
    )
    connection.executemany(
        "DELETE FROM timelines WHERE fragment = ? AND activity = ? AND day = ?",
        [row[:3] for row in pages if not row[-1]],
    )
    connection.executemany(
        "DELETE FROM timelines WHERE fragment = ? AND activity = ? AND day < ?",
        [(number, *each) for number, write in written for each in write.expired.items()],
    )


def remove(connection: sqlite3.Connection, number: int) -> None:
    """Remove all pages and the due entry of a fragment."""
    connection.execute("DELETE FROM timelines WHERE fragment = ?", (number,))
    connection.execute("DELETE FROM due WHERE fragment = ?", (number,))


def _numbers(connection: sqlite3.Connection, ids: Collection[str]) -> dict[str, int]:
    return dict(among(connection, "SELECT id, number FROM fragments WHERE id", ids))
