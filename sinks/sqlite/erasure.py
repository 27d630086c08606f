"""Removing fragments from the profile store's file."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from idgraph.model.store import NEW
from idgraph.model.tombstones import NO_EPOCH, FragmentSummary, Tombstone
from sinks.sqlite import outbox, timelines
from sinks.sqlite.tombstones import SqliteTables, all_by_name, are_there, join_by_name

TABLES = (
    """CREATE TABLE erasures (
    fragment TEXT PRIMARY KEY,
    version INTEGER NOT NULL,
    identifiers TEXT NOT NULL) WITHOUT ROWID""",
    """CREATE TABLE withdrawn (
    fragment TEXT PRIMARY KEY,
    version INTEGER NOT NULL) WITHOUT ROWID""",
)


class SqliteErasure(SqliteTables):
    """`Tombstones` and `Withdrawals` say what the methods promise."""

    def tombstones(self, ids: Iterable[str]) -> dict[str, Tombstone]:
        if not self._file.read(are_there):
            return {}
        # A generator would be used up, should the work have to run again.
        wanted = list(ids)
        return self._file.read(lambda connection: self._tombstones.find(connection, wanted))

    def summaries(self, ids: Sequence[str]) -> list[FragmentSummary]:
        return self._file.read(lambda connection: [_summary(connection, each) for each in ids])

    def erase(self, ids: Sequence[str], until: int) -> list[FragmentSummary]:
        def erase_rows(connection: sqlite3.Connection) -> list[FragmentSummary]:
            summaries = [_summary(connection, each) for each in ids]
            self._tombstones.join(connection, {each.fragment_id: each.tombstone(until) for each in summaries})
            tombstones = self._tombstones.find(connection, ids)
            erased = [
                each._replace(
                    version=tombstones[each.fragment_id].version,
                    # An interrupted erasure may have removed these rows already.
                    identifiers=each.identifiers | _noted(connection, each.fragment_id),
                )
                for each in summaries
            ]
            for each in erased:
                _remove(connection, each.fragment_id)
                _note(connection, each)
            outbox.add(connection, [(each.fragment_id, each.version) for each in erased])
            return erased

        return self._file.write(erase_rows)

    def unfinished(self) -> list[FragmentSummary]:
        query = "SELECT fragment, version, identifiers FROM erasures ORDER BY fragment"
        rows = self._file.read(lambda connection: connection.execute(query).fetchall())
        return [FragmentSummary(row[0], row[1], frozenset(json.loads(row[2])), False) for row in rows]

    def finish(self, ids: Sequence[str]) -> None:
        # First: should that fail, the erasure is still noted as unfinished.
        self._file.rewrite()
        self._forget("DELETE FROM erasures WHERE fragment = ?", ids)
        self._file.truncate_log()

    def withdraw(self, versions: Mapping[str, int]) -> set[str]:
        def withdraw_rows(connection: sqlite3.Connection) -> set[str]:
            present = {each: _summary(connection, each) for each in versions}
            gone = {each: version for each, version in versions.items() if present[each].version == version}
            self._tombstones.join(connection, {each: present[each].tombstone() for each in gone})
            for each in gone:
                _remove(connection, each)
            removed = self._tombstones.find(connection, gone).items()
            outbox.add(connection, [(name, tombstone.version) for name, tombstone in removed])
            connection.executemany("INSERT OR REPLACE INTO withdrawn VALUES (?, ?)", sorted(gone.items()))
            return {each for each in versions if each not in gone and present[each].version != NEW}

        return self._file.write(withdraw_rows) if versions else set()

    def withdrawn(self) -> dict[str, int]:
        return dict(
            self._file.read(lambda c: c.execute("SELECT fragment, version FROM withdrawn").fetchall())
        )

    def forget_withdrawn(self, ids: Sequence[str]) -> None:
        if ids:
            self._forget("DELETE FROM withdrawn WHERE fragment = ?", ids)

    def all_tombstones(self) -> dict[bytes, Tombstone]:
        return self._file.read(all_by_name)

    def reinstate(self, tombstones: Mapping[bytes, Tombstone]) -> int:
        def join_lost(connection: sqlite3.Connection) -> int:
            lost = tombstones.keys() - all_by_name(connection).keys()
            join_by_name(connection, tombstones)
            return len(lost)

        return self._file.write(join_lost) if tombstones else 0

    def cancel(self, ids: Sequence[str]) -> int:
        query = (
            "UPDATE tombstones SET until = ? WHERE name = ? AND until > ? "
            "AND NOT EXISTS (SELECT 1 FROM erasures WHERE fragment = ?)"
        )
        names = sorted({self._tombstones.name(each): each for each in ids}.items())
        rows = [(NO_EPOCH, name, NO_EPOCH, fragment) for name, fragment in names]
        return self._file.write(lambda connection: connection.executemany(query, rows).rowcount)

    def _forget(self, statement: str, ids: Sequence[str]) -> None:
        rows = [(each,) for each in ids]
        self._file.write(lambda connection: connection.executemany(statement, rows))


def _summary(connection: sqlite3.Connection, fragment_id: str) -> FragmentSummary:
    waits = outbox.waits(connection, fragment_id)
    query = "SELECT number, version, named, epoch FROM fragments WHERE id = ?"
    row = connection.execute(query, (fragment_id,)).fetchone()
    if row is None:
        return FragmentSummary(fragment_id, NEW, frozenset(), waits)
    number, version, named, epoch = row
    carried = _column(connection, "SELECT identifier FROM identifiers WHERE fragment = ?", number)
    return FragmentSummary(
        fragment_id, version, frozenset(carried) | ({fragment_id} if named else set()), waits, epoch
    )


def _remove(connection: sqlite3.Connection, fragment_id: str) -> None:
    for number in _column(connection, "SELECT number FROM fragments WHERE id = ?", fragment_id):
        connection.execute("DELETE FROM identifiers WHERE fragment = ?", (number,))
        timelines.remove(connection, number)
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
