"""The embedded profile index: one SQLite file, in which segments of postings answer every kind of clause.

See docs/adr/0003-profile-index.md for why terms and ranges are tokens too, and docs/adr/0021-index-segments.md for the
segments.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from merge.index import IndexDocument, SearchPage
from merge.tombstones import UNJUDGED, Tombstone, TombstoneNames
from model.errors import ProfileIndexError
from model.queries import Query
from sinks import sqlite_index_search, sqlite_index_segments, sqlite_tombstones
from sinks.index_cursors import cursor_after, read_cursor
from sinks.index_values import check_text, is_unicode
from sinks.sqlite_files import SqliteFile, chunks, marks
from sinks.sqlite_index_blocks import Block, build
from sinks.sqlite_index_migration import to_segments
from sinks.sqlite_index_queries import Interval, compiled
from sinks.sqlite_index_tokens import PathTokens, Tokenizer
from sinks.sqlite_schema import Schema
from sinks.sqlite_tombstones import SqliteTombstones

# Of the first version what the third one needs: a file that has it has a full-text table as well.
_SCHEMA = Schema(
    application_id=0x69646779,
    migrations=(
        (
            """CREATE TABLE documents (
                number INTEGER PRIMARY KEY,
                id TEXT NOT NULL UNIQUE,
                version INTEGER NOT NULL,
                tokens TEXT NOT NULL)""",
            "CREATE TABLE paths (number INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE)",
        ),
        (sqlite_tombstones.TABLE,),
        (to_segments,),
    ),
    settings=("PRAGMA wal_autocheckpoint = 4000", "PRAGMA cache_size = -32768"),
)


MOST_PATHS = 200_000
"""How many paths' numbers a process remembers; more are read again."""


class _Prepared(NamedTuple):
    id: str
    version: int
    tokens: bytes


class SqliteProfileIndex:
    """A `ProfileIndex` in one file, made when first used, for the owner only.

    A document of the version that is there replaces it too: policy may have changed what may be indexed.
    An erased document leaves nothing that a search finds; `compact` also takes it out of the file.
    """

    def __init__(self, path: str | Path, names: TombstoneNames | None = None) -> None:
        """`names` hashes the ids of erased documents; with some in the file nothing is put without it."""
        self._file = SqliteFile(path, _SCHEMA, ProfileIndexError)
        self._tombstones = SqliteTombstones(names, ProfileIndexError)
        # Numbers are given out once and never change, so what is here stays true.
        self._paths: dict[str, PathTokens] = {}
        self._tokenizer = Tokenizer(self._paths)

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        tokenizer = self._learn(documents)
        refused: dict[str, str] = {}
        newest: dict[str, _Prepared] = {}
        # Before the transaction: other writers need not wait for it.
        for document in documents:
            try:
                document.id.encode()
                tokens = tokenizer.tokens(document.fields)
            except TypeError as error:
                refused[document.id] = str(error)
            except (UnicodeEncodeError, KeyError):
                # A path that is not valid Unicode was not learnt.
                refused[document.id] = "text that is not valid Unicode"
            else:
                present = newest.get(document.id)
                if present is None or present.version <= document.version:
                    newest[document.id] = _Prepared(document.id, document.version, tokens)
        if newest:
            given = sorted(newest.values())
            blocks = build([each.tokens for each in given])
            self._file.write(lambda connection: self._put(connection, given, blocks))
        return refused

    def holds(self, ids: Sequence[str]) -> set[str]:
        return {each.id for each in self._file.read(lambda connection: _stored(connection, ids))}

    def erase(self, versions: Mapping[str, int]) -> int:
        def work(connection: sqlite3.Connection) -> int:
            stored = list(_stored(connection, list(versions)))
            gone = [each.id for each in stored if each.version <= versions[each.id]]
            buried = {each: Tombstone(UNJUDGED, version) for each, version in versions.items()}
            self._tombstones.join(connection, buried)
            _delete(connection, gone)
            return len(gone)

        return self._file.write(work) if versions else 0

    def search(self, query: Query, limit: int = 20, cursor: str | None = None) -> SearchPage:
        after = "" if cursor is None else read_cursor(cursor)
        intervals = self._compiled(query)

        def work(connection: sqlite3.Connection) -> list[str]:
            found = sqlite_index_search.matching(connection, intervals)
            if found is None:
                wanted = "SELECT id FROM documents WHERE id > ? ORDER BY id LIMIT ?"
                return [row[0] for row in connection.execute(wanted, (after, limit + 1))]
            return sqlite_index_search.first_ids(connection, found, after, limit + 1)

        ids = self._file.read(work)
        page = ids[:limit]
        return SearchPage(page, cursor_after(page[-1]) if len(ids) > limit and page else None)

    def count(self, query: Query) -> int:
        intervals = self._compiled(query)

        def work(connection: sqlite3.Connection) -> int:
            found = sqlite_index_search.matching(connection, intervals)
            if found is None:
                return int(connection.execute("SELECT count(*) FROM documents").fetchone()[0])
            return sqlite_index_search.how_many(connection, found)

        return self._file.read(work)

    def compact(self) -> None:
        """Rewrite each segment of which something is gone, so that nothing deleted is left in the file. It holds
        the write lock meanwhile."""
        self._file.write(sqlite_index_segments.compact)
        self._file.rewrite()

    def close(self) -> None:
        self._file.close()

    def _put(
        self, connection: sqlite3.Connection, given: Sequence[_Prepared], blocks: Sequence[Block]
    ) -> None:
        """`blocks` are those of all that are given."""
        ids = [each.id for each in given]
        stored = {each.id: each for each in _stored(connection, ids)}
        forbidden = {each: old.version - 1 for each, old in stored.items()}
        for name, tombstone in self._tombstones.find(connection, ids).items():
            forbidden[name] = max(forbidden.get(name, tombstone.version), tombstone.version)
        kept = [each for each in given if each.id not in forbidden or each.version > forbidden[each.id]]
        if not kept:
            return
        if len(kept) < len(given):
            # What was erased must not stand in the file either.
            blocks = build([each.tokens for each in kept])
        _write(connection, kept, stored, blocks)

    def _compiled(self, query: Query) -> list[list[Interval]]:
        check_text(query)
        asked = {clause.path for clause in query.clauses if clause.path is not None}
        known = self._paths
        if not asked <= known.keys():
            known.update(self._file.read(lambda connection: _paths(connection, asked)))
        return compiled(query, known)

    def _learn(self, documents: Sequence[IndexDocument]) -> Tokenizer:
        """A tokenizer that knows the paths of these documents."""
        if len(self._paths) > MOST_PATHS:
            self._forget_paths()
        known, tokenizer = self._paths, self._tokenizer
        new = {path for each in documents if not each.fields.keys() <= known.keys() for path in each.fields}
        unknown = sorted(path for path in new - known.keys() if is_unicode(path))
        if not unknown:
            return tokenizer

        def work(connection: sqlite3.Connection) -> dict[str, PathTokens]:
            connection.executemany(
                "INSERT OR IGNORE INTO paths (path) VALUES (?)", [(path,) for path in unknown]
            )
            return _paths(connection, unknown)

        known.update(self._file.write(work))
        return tokenizer

    def _forget_paths(self) -> None:
        # New objects: another thread may be in the middle of using the old ones.
        self._paths = {}
        self._tokenizer = Tokenizer(self._paths)


def _paths(connection: sqlite3.Connection, paths: Iterable[str]) -> dict[str, PathTokens]:
    return {
        path: PathTokens.of(number)
        for chunk in chunks(list(paths))
        for path, number in connection.execute(
            f"SELECT path, number FROM paths WHERE path IN ({marks(len(chunk))})",  # noqa: S608 - marks only
            chunk,
        )
    }


class _Stored(NamedTuple):
    id: str
    number: int
    version: int


def _stored(connection: sqlite3.Connection, ids: Sequence[str]) -> Iterator[_Stored]:
    for chunk in chunks(ids):
        query = f"SELECT id, number, version FROM documents WHERE id IN ({marks(len(chunk))})"  # noqa: S608 - marks only
        yield from map(_Stored._make, connection.execute(query, chunk))


def _write(
    connection: sqlite3.Connection,
    documents: Sequence[_Prepared],
    stored: Mapping[str, _Stored],
    blocks: Sequence[Block],
) -> None:
    first = sqlite_index_segments.next_number(connection)
    inserts: list[tuple[int, str, int]] = []
    updates: list[tuple[int, int, int]] = []
    for number, document in enumerate(documents, first):
        old = stored.get(document.id)
        if old is None:
            inserts.append((number, document.id, document.version))
        else:
            updates.append((number, document.version, old.number))
    if updates:
        sqlite_index_segments.bury(connection, (old for _, _, old in updates))
    connection.executemany("UPDATE documents SET number = ?, version = ? WHERE number = ?", updates)
    connection.executemany("INSERT INTO documents VALUES (?, ?, ?)", inserts)
    sqlite_index_segments.write(connection, first, len(documents), blocks)
    sqlite_index_segments.merge(connection)


def _delete(connection: sqlite3.Connection, ids: Sequence[str]) -> None:
    numbers = {each.number for each in _stored(connection, ids)}
    if numbers:
        sqlite_index_segments.bury(connection, numbers)
        connection.executemany("DELETE FROM documents WHERE number = ?", [(each,) for each in numbers])
