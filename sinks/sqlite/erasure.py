"""Removing fragments from the profile store's file, each function within one transaction of the caller's."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from typing import Any

from idgraph.model.store import NEW
from idgraph.model.tombstones import NO_EPOCH, FragmentSummary
from sinks.sqlite import outbox as sqlite_outbox
from sinks.sqlite.tombstones import SqliteTombstones

UNFINISHED_TABLE = """CREATE TABLE erasures (
    fragment TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    identifiers TEXT NOT NULL) WITHOUT ROWID"""

WITHDRAWN_TABLE = """CREATE TABLE withdrawn (
    fragment TEXT PRIMARY KEY,
    version INTEGER NOT NULL) WITHOUT ROWID"""


def summary(connection: sqlite3.Connection, fragment_id: str) -> FragmentSummary:
    """A fragment in the file."""
    waits = sqlite_outbox.waits(connection, fragment_id)
    query = "SELECT number, version, named, epoch FROM fragments WHERE id = ?"
    row = connection.execute(query, (fragment_id,)).fetchone()
    if row is None:
        return FragmentSummary(fragment_id, NEW, frozenset(), waits)
    number, version, named, epoch = row
    carried = _column(connection, "SELECT identifier FROM identifiers WHERE fragment = ?", number)
    return FragmentSummary(
        fragment_id, version, frozenset(carried) | ({fragment_id} if named else set()), waits, epoch
    )


def erase(
    connection: sqlite3.Connection, tombstones: SqliteTombstones, ids: Sequence[str], until: int
) -> list[FragmentSummary]:
    """Remove fragments, set their tombstones, note them as unfinished; gives what there was, and what was noted."""
    found = [summary(connection, each) for each in ids]
    tombstones.join(connection, {each.fragment_id: each.tombstone(until) for each in found})
    kept = tombstones.find(connection, ids)
    erased = [
        each._replace(
            version=kept[each.fragment_id].version,
            # Of what an erasure that was interrupted had taken, the rows are gone by now.
            identifiers=each.identifiers | _noted(connection, each.fragment_id),
        )
        for each in found
    ]
    for each in erased:
        _remove(connection, each.fragment_id)
        _note(connection, each)
    sqlite_outbox.add(connection, [(each.fragment_id, each.version) for each in erased])
    return erased


def unfinished(connection: sqlite3.Connection) -> list[FragmentSummary]:
    """Erasures that are not finished everywhere."""
    rows = connection.execute("SELECT fragment, version, identifiers FROM erasures ORDER BY fragment")
    return [FragmentSummary(row[0], row[1], frozenset(json.loads(row[2])), False) for row in rows]


def cancel(connection: sqlite3.Connection, names: Mapping[bytes, str]) -> int:
    """Let tombstones forbid nothing, by name with the fragment, but of those that are unfinished; gives how many did.
    Their versions stay."""
    query = (
        "UPDATE tombstones SET until = ? WHERE name = ? AND until > ? "
        "AND NOT EXISTS (SELECT 1 FROM erasures WHERE fragment = ?)"
    )
    rows = [(NO_EPOCH, name, NO_EPOCH, fragment) for name, fragment in sorted(names.items())]
    return connection.executemany(query, rows).rowcount


def withdraw(
    connection: sqlite3.Connection, tombstones: SqliteTombstones, versions: Mapping[str, int]
) -> set[str]:
    """Remove fragments that have these versions, and note them; gives those that have another."""
    present = {each: summary(connection, each) for each in versions}
    gone = {each: version for each, version in versions.items() if present[each].version == version}
    tombstones.join(connection, {each: present[each].tombstone() for each in gone})
    for each in gone:
        _remove(connection, each)
    removed = tombstones.find(connection, gone).items()
    sqlite_outbox.add(connection, [(name, tombstone.version) for name, tombstone in removed])
    connection.executemany("INSERT OR REPLACE INTO withdrawn VALUES (?, ?)", sorted(gone.items()))
    return {each for each in versions if each not in gone and present[each].version != NEW}


def _remove(connection: sqlite3.Connection, fragment_id: str) -> None:
    for number in _column(connection, "SELECT number FROM fragments WHERE id = ?", fragment_id):
        connection.execute("DELETE FROM identifiers WHERE fragment = ?", (number,))
        connection.execute("DELETE FROM fragments WHERE number = ?", (number,))


def _noted(connection: sqlite3.Connection, fragment_id: str) -> frozenset[str]:
    query = "SELECT identifiers FROM erasures WHERE fragment = ?"
    return frozenset(name for text in _column(connection, query, fragment_id) for name in json.loads(text))


def _note(connection: sqlite3.Connection, erased: FragmentSummary) -> None:
    connection.execute(
        "INSERT OR REPLACE INTO erasures VALUES (?, ?, ?)",
        (erased.fragment_id, erased.version, json.dumps(sorted(erased.identifiers))),
    )


def _column(connection: sqlite3.Connection, query: str, value: str | int) -> list[Any]:
    return [row[0] for row in connection.execute(query, (value,))]
