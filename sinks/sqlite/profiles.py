"""The embedded profile store: fragments, what they can be found by, and the outbox in one SQLite file.

See docs/adr/0002-profile-store.md for the tables and what they cost.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

from idgraph.model.errors import StoreError, UnstorableError
from idgraph.model.store import (
    NEW,
    WHOLE,
    Assignment,
    FragmentWrite,
    OutboxEntry,
    OutboxShare,
    SharedIdentifiers,
    StoredFragment,
)
from idgraph.model.tombstones import NO_EPOCH, Tombstone, TombstoneNames
from sinks.sqlite import erasure, ledger, outbox, pins, timelines, tombstones
from sinks.sqlite.database import CHUNK, SqliteFile, among, marks
from sinks.sqlite.erasure import SqliteErasure
from sinks.sqlite.ledger import SqliteLedger
from sinks.sqlite.pins import SqlitePins
from sinks.sqlite.schema import Schema
from sinks.sqlite.timelines import SqliteTimelines
from sinks.sqlite.tombstones import SqliteTombstones

# `named` says that the fragment's own id is among its identifiers: nearly always so, and it saves two rows.
_SCHEMA = Schema(
    application_id=0x69646770,
    migrations=(
        (
            """CREATE TABLE fragments (
                number INTEGER PRIMARY KEY,
                id TEXT NOT NULL UNIQUE,
                version INTEGER NOT NULL,
                named INTEGER NOT NULL,
                state BLOB NOT NULL,
                profile TEXT NOT NULL DEFAULT '',
                epoch INTEGER NOT NULL DEFAULT 0,
                name BLOB)""",
            "CREATE INDEX fragments_by_name ON fragments (name) WHERE name IS NOT NULL",
            """CREATE TABLE identifiers (
                identifier TEXT NOT NULL,
                fragment INTEGER NOT NULL,
                PRIMARY KEY (identifier, fragment)) WITHOUT ROWID""",
            "CREATE INDEX identifiers_of_fragment ON identifiers (fragment)",
            "CREATE TABLE marks (mark TEXT PRIMARY KEY) WITHOUT ROWID",
            outbox.TABLE,
            tombstones.TABLE,
            *erasure.TABLES,
            *pins.TABLES,
            *ledger.TABLES,
        ),
        timelines.TABLES,
    ),
    # 64 MB of log between checkpoints: a page that is written often is moved home once.
    settings=("PRAGMA wal_autocheckpoint = 16000", "PRAGMA cache_size = -32768"),
)


class SqliteProfileStore(SqlitePins, SqliteLedger, SqliteTimelines, SqliteErasure):
    """A `ProfileStore` in one file. `path` and its folder are made when first used, for the owner only.

    `names` hashes the ids of erased fragments; a store that has tombstones takes no writes without it.
    """

    def __init__(self, path: str | Path, names: TombstoneNames | None = None) -> None:
        file = SqliteFile(path, _SCHEMA, StoreError, UnstorableError)
        super().__init__(file, SqliteTombstones(names, StoreError))

    def read(self, ids: Sequence[str]) -> dict[str, StoredFragment]:
        return self._file.read(lambda connection: _read(connection, ids)) if ids else {}

    def read_with_tombstones(
        self, ids: Sequence[str]
    ) -> tuple[dict[str, StoredFragment], dict[str, Tombstone]]:
        return self._file.read(
            lambda connection: (_read(connection, ids), self._tombstones.find(connection, ids))
        )

    def read_with_shared(self, ids: Sequence[str]) -> tuple[dict[str, StoredFragment], SharedIdentifiers]:
        return self._file.read(lambda connection: _read_with_shared(connection, ids))

    def consistent_read(self) -> AbstractContextManager[None]:
        return self._file.consistent_read()

    def write(self, writes: Sequence[FragmentWrite]) -> set[str]:
        if not writes:
            return set()
        return self._file.write(lambda connection: _write(connection, self._tombstones, writes))

    def find(self, identifier: str) -> list[str]:
        return sorted(self.find_all([identifier], sys.maxsize).get(identifier, ()))

    def find_all(self, identifiers: Sequence[str], limit: int) -> dict[str, list[str]]:
        asked = list(dict.fromkeys(identifiers))
        return self._file.read(lambda connection: _find_all(connection, asked, limit)) if limit else {}

    def assign(self, assignments: Sequence[Assignment]) -> set[str]:
        if not assignments:
            return set()
        return self._file.write(lambda connection: _assign(connection, self._tombstones.name, assignments))

    def identifiers(self, fragment_id: str) -> frozenset[str]:
        query = """
            SELECT id FROM fragments WHERE id = :name AND named
            UNION ALL SELECT identifier FROM fragments JOIN identifiers ON fragment = number WHERE id = :name"""
        return frozenset(row[0] for row in self._rows(query, {"name": fragment_id}))

    def scan(self, after: str = "", limit: int = 1000) -> list[StoredFragment]:
        query = "SELECT id, version, state, profile, epoch FROM fragments WHERE id > ? ORDER BY id LIMIT ?"
        return [StoredFragment._make(row) for row in self._rows(query, (after, limit))]

    def ids(self) -> Iterator[str]:
        after = ""
        while page := self._rows("SELECT id FROM fragments WHERE id > ? ORDER BY id LIMIT 10000", (after,)):
            yield from (row[0] for row in page)
            after = page[-1][0]

    def count(self) -> int:
        return int(self._rows("SELECT count(*) FROM fragments", ())[0][0])

    def outbox(self, limit: int = 1000, after: str = "", share: OutboxShare = WHOLE) -> list[OutboxEntry]:
        return self._file.read(lambda connection: outbox.entries(connection, limit, after, share))

    def enqueue(self, ids: Sequence[str]) -> None:
        def raise_versions(connection: sqlite3.Connection) -> None:
            query = "UPDATE fragments SET version = version + 1 WHERE id = ? RETURNING id, version"
            rows = [connection.execute(query, (each,)).fetchone() for each in ids]
            outbox.add(connection, [row for row in rows if row is not None])

        if ids:
            self._file.write(raise_versions)

    def settle(self, entries: Sequence[OutboxEntry]) -> None:
        if entries:
            # Entries that a power cut brings back are projected again, without effect.
            self._file.write_unflushed(lambda connection: outbox.settle(connection, entries))

    def remember(self, mark: str, instead_of: str = "") -> None:
        def replace_mark(connection: sqlite3.Connection) -> None:
            connection.execute("DELETE FROM marks WHERE mark = ?", (instead_of,))
            connection.execute("INSERT OR IGNORE INTO marks (mark) VALUES (?)", (mark,))

        self._file.write(replace_mark)

    def remembers(self, mark: str) -> bool:
        return bool(self._rows("SELECT 1 FROM marks WHERE mark = ?", (mark,)))

    def name(self, text: str) -> bytes:
        return self._tombstones.name(text)

    def changes(self) -> int | None:
        return self._file.changes()

    def close(self) -> None:
        self._file.close()

    def _rows(self, query: str, values: tuple[str | int, ...] | dict[str, str]) -> list[tuple[str, ...]]:
        return self._file.read(lambda connection: connection.execute(query, values).fetchall())


def _read(connection: sqlite3.Connection, ids: Sequence[str]) -> dict[str, StoredFragment]:
    query = "SELECT id, version, state, profile, epoch FROM fragments WHERE id"
    return {row[0]: StoredFragment._make(row) for row in among(connection, query, ids)}


_SHARED = (
    """SELECT own.fragment, own.identifier, other.fragment FROM identifiers AS own
    JOIN identifiers AS other ON other.identifier = own.identifier AND other.fragment <> own.fragment
    WHERE own.fragment""",
    # The id of another fragment, and the same from that one's side.
    """SELECT fragment, identifier, number FROM identifiers JOIN fragments ON id = identifier AND named
    WHERE fragment""",
    "SELECT number, id, fragment FROM fragments JOIN identifiers ON identifier = id WHERE number",
)
_SHARED_BY_MANY = (
    """SELECT fragment, identifier FROM identifiers AS own WHERE (
    EXISTS (SELECT 1 FROM identifiers WHERE identifier = own.identifier AND fragment <> own.fragment)
    OR EXISTS (SELECT 1 FROM fragments WHERE id = own.identifier AND named)) AND fragment""",
    "SELECT number, id FROM fragments WHERE EXISTS (SELECT 1 FROM identifiers WHERE identifier = id) AND number",
)
_PINNED = (
    "SELECT fragment, identifier FROM identifiers JOIN pins ON low = identifier WHERE fragment",
    "SELECT fragment, identifier FROM identifiers JOIN pins ON high = identifier WHERE fragment",
    "SELECT number, id FROM fragments JOIN pins ON low = id WHERE number",
    "SELECT number, id FROM fragments JOIN pins ON high = id WHERE number",
)


def _read_with_shared(
    connection: sqlite3.Connection, ids: Sequence[str]
) -> tuple[dict[str, StoredFragment], SharedIdentifiers]:
    query = "SELECT id, version, state, profile, epoch, number, named FROM fragments WHERE id"
    rows = list(among(connection, query, ids))
    names = {row[5]: row[0] for row in rows}
    fragments: set[int] = set()
    # All that carry an identifier stand beside the first fragment that shares it.
    first_of: dict[str, int] = {}
    others_of: dict[str, list[int]] = defaultdict(list)
    unknown: set[str] = set()
    for start in range(0, len(rows), CHUNK):
        numbers = [row[5] for row in rows[start : start + CHUNK]]
        shared = [
            each for one in _SHARED for each in among(connection, one, numbers, f" LIMIT {_MOST_TOGETHER}")
        ]
        queries: tuple[str, ...] = _PINNED if pins.are_there(connection) else ()
        if len(shared) >= _MOST_TOGETHER:
            shared, queries = [], queries + _SHARED_BY_MANY
        for number, identifier, other in shared:
            fragments.add(number)
            if first_of.setdefault(identifier, number) == number:
                others_of[identifier].append(other)
        for number, identifier in (each for one in queries for each in among(connection, one, numbers)):
            fragments.add(number)
            unknown.add(identifier)
    unread = {each for some in others_of.values() for each in some if each not in names}
    found = {row[0]: StoredFragment._make(row[:5]) for row in rows}
    in_question = {names[each] for each in fragments}
    names.update(among(connection, "SELECT number, id FROM fragments WHERE number", unread))
    unnamed = {row[0] for row in rows if not row[6]}
    carriers = {
        identifier: [
            names[each] for each in (*others_of[identifier], *((first,) * (identifier not in unnamed)))
        ]
        for identifier, first in first_of.items()
    }
    return found, SharedIdentifiers(in_question, unknown.union(first_of), carriers)


_CARRIERS = """
SELECT ?1, id FROM fragments WHERE id = ?1 AND named
UNION ALL SELECT ?1, id FROM identifiers JOIN fragments ON number = fragment WHERE identifier = ?1
LIMIT ?2"""
_MOST_TOGETHER = 4 * CHUNK
"""If some identifiers have more carriers, one of them may be a hub: each is asked for by itself."""
_TOGETHER = """
SELECT id, id FROM fragments WHERE named AND id IN ({0})
UNION ALL SELECT * FROM (
    SELECT identifier, id FROM identifiers JOIN fragments ON number = fragment WHERE identifier IN ({0})
    LIMIT {1})"""


def _find_all(connection: sqlite3.Connection, identifiers: Sequence[str], limit: int) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for start in range(0, len(identifiers), CHUNK):
        some = identifiers[start : start + CHUNK]
        rows = connection.execute(
            _TOGETHER.format(marks(len(some)), _MOST_TOGETHER), (*some, *some)
        ).fetchall()
        if len(rows) >= _MOST_TOGETHER:
            rows = [row for each in some for row in connection.execute(_CARRIERS, (each, limit))]
        for identifier, fragment_id in rows:
            found[identifier].append(fragment_id)
    return {identifier: carriers[:limit] for identifier, carriers in found.items()}


def _assign(
    connection: sqlite3.Connection, names: TombstoneNames, assignments: Sequence[Assignment]
) -> set[str]:
    # Most names are asked for several times.
    names = cache(names)
    query = "SELECT id, number, version, epoch FROM fragments WHERE id"
    present = {row[0]: row[1:] for row in among(connection, query, [e.fragment_id for e in assignments])}
    # Nobody else writes within this transaction.
    found = [
        e for e in assignments if e.fragment_id in present and present[e.fragment_id][2] == e.expected_epoch
    ]
    connection.executemany(
        "UPDATE fragments SET profile = ?, epoch = epoch + 1, version = version + 1, name = ? WHERE number = ?",
        [(e.profile_id, names(e.fragment_id), present[e.fragment_id][0]) for e in found],
    )
    ledger.add(connection, filter(None, (each.entry(names) for each in found)))
    outbox.add(connection, [(e.fragment_id, present[e.fragment_id][1] + 1) for e in found])
    return {e.fragment_id for e in assignments}.difference(e.fragment_id for e in found)


def _write(
    connection: sqlite3.Connection, known: SqliteTombstones, writes: Sequence[FragmentWrite]
) -> set[str]:
    query = "SELECT id, number, version FROM fragments WHERE id"
    stored = {row[0]: row[1:] for row in among(connection, query, [write.id for write in writes])}
    number = connection.execute("SELECT coalesce(max(number), 0) + 1 FROM fragments").fetchone()[0]
    tombstoned = known.find(connection, (write.id for write in writes))
    inserts: list[tuple[int, str, int, bool, bytes]] = []
    updates: list[tuple[bytes, bool, bool, int]] = []
    carried: list[tuple[str, int]] = []
    dropped: list[tuple[str, int]] = []
    waiting: list[tuple[str, int]] = []
    paged: list[tuple[int, FragmentWrite]] = []
    refused: set[str] = set()
    # In the order of the ids: neighbours in the index share pages.
    for write in sorted(writes):
        fragment_id, expected, state, identifiers, erasure_epoch, others, pages, expired = write
        tombstone = tombstoned.get(fragment_id, _NONE) if tombstoned else _NONE
        found, version = stored.get(fragment_id, _ABSENT)
        if not found:
            version = tombstone.version
        if version != expected or tombstone.refuses(erasure_epoch) or (found and tombstone.covers(version)):
            refused.add(fragment_id)
            continue
        named, unnamed = fragment_id in identifiers, fragment_id in others
        if found:
            updates.append((state, named, unnamed, found))
        else:
            found = number
            number += 1
            inserts.append((found, fragment_id, version + 1, named and not unnamed, state))
        waiting.append((fragment_id, version + 1))
        # Most have no other name than their id.
        if len(identifiers) > named:
            carried += [(each, found) for each in identifiers if each != fragment_id]
        if others:
            dropped += [(each, found) for each in others]
        if pages or expired:
            paged.append((found, write))
    connection.executemany(
        "INSERT INTO fragments (number, id, version, named, state) VALUES (?, ?, ?, ?, ?)", inserts
    )
    connection.executemany(
        "UPDATE fragments SET version = version + 1, state = ?, named = (named OR ?) AND NOT ? WHERE number = ?",
        updates,
    )
    connection.executemany("INSERT OR IGNORE INTO identifiers VALUES (?, ?)", sorted(carried))
    connection.executemany("DELETE FROM identifiers WHERE identifier = ? AND fragment = ?", dropped)
    timelines.write(connection, paged)
    outbox.add(connection, waiting)
    return refused


_NONE = Tombstone(NO_EPOCH, NEW)
_ABSENT = (0, NEW)
