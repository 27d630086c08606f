"""The embedded profile index: one SQLite file, in which segments of postings answer every kind of clause.

See docs/adr/0003-profile-index.md for why terms and ranges are tokens too, and docs/adr/0021-index-segments.md for the
segments.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from idgraph.files import WriterLock
from idgraph.model.errors import ProfileIndexError
from idgraph.model.index import IndexDocument, Indexed, SearchPage
from idgraph.model.index_versions import VersionState
from idgraph.model.queries import Query
from idgraph.model.tombstones import NO_EPOCH, Tombstone, TombstoneNames
from sinks.index_values import check_text, cursor_after, read_cursor
from sinks.sqlite import tombstones as sqlite_tombstones
from sinks.sqlite.database import SqliteFile
from sinks.sqlite.index import documents as rows
from sinks.sqlite.index import search as sqlite_index_search
from sinks.sqlite.index import segments as sqlite_index_segments
from sinks.sqlite.index import tables as tables_of
from sinks.sqlite.index.blocks import build
from sinks.sqlite.index.migration import to_segments
from sinks.sqlite.index.paths import IndexPaths
from sinks.sqlite.index.queries import Interval, compiled
from sinks.sqlite.index.tables import TOMBSTONES
from sinks.sqlite.schema import Schema
from sinks.sqlite.tombstones import SqliteTombstones

# Of the first version what the third one needs: a file that has it has a full-text table as well.
SCHEMA = Schema(
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
        ("ALTER TABLE documents ADD COLUMN content BLOB", *tables_of.MIGRATION),
        tables_of.MARKS,
    ),
    settings=("PRAGMA wal_autocheckpoint = 4000", "PRAGMA cache_size = -32768"),
)
_REMEDY = "stop what uses it, remove it with its -wal and -shm, and run `idgraph reindex`"


def index_file(path: str | Path) -> SqliteFile:
    """The file of an index, all of which can be had again from the store."""
    return SqliteFile(path, SCHEMA, ProfileIndexError, remedy=_REMEDY)


class SqliteProfileIndex:
    """A `ProfileIndex` in one file, made when first used, for the owner only.

    A document of the version that is there replaces it too: policy may have changed what may be indexed.
    An erased document leaves nothing that a search finds; `compact` also takes it out of the file.
    """

    def __init__(self, path: str | Path, names: TombstoneNames | None = None) -> None:
        """`names` hashes the ids of erased documents; with some in the file nothing is put without it."""
        self._file = index_file(path)
        self._tombstones = SqliteTombstones(names, ProfileIndexError)
        self._paths = IndexPaths(self._file)
        self._writer = WriterLock(Path(f"{path}.lock"))

    @contextmanager
    def writing(self) -> Iterator[None]:
        self._file.read(lambda _: None)
        with self._writer():
            yield

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        # Before the transaction: other writers need not wait for it.
        given, refused = rows.prepared(documents, self._paths)
        if given:
            blocks = build([each.tokens for each in given])

            def work(connection: sqlite3.Connection) -> None:
                # Also into a version that is being made, which so misses nothing.
                for tables in tables_of.written(connection):
                    rows.put(connection, tables, given, blocks, self._tombstones)

            with self.writing():
                self._file.write(work)
        return refused

    def versions(self, ids: Sequence[str]) -> dict[str, int]:
        return self._file.read(
            lambda connection: {each.id: each.version for each in rows.stored(connection, ids)}
        )

    def compare(self, documents: Sequence[IndexDocument]) -> dict[str, Indexed]:
        given, _ = rows.prepared(documents, self._paths)
        contents = {each.id: each.content for each in given}
        ids = [each.id for each in documents]
        return self._file.read(
            lambda connection: {
                each.id: Indexed(
                    each.version, each.content is not None and each.content == contents.get(each.id)
                )
                for each in rows.stored(connection, ids)
            }
        )

    def erase(self, versions: Mapping[str, int]) -> int:
        def work(connection: sqlite3.Connection) -> int:
            tombstoned = {each: Tombstone(NO_EPOCH, version) for each, version in versions.items()}
            counts: list[int] = []
            for tables in tables_of.every(connection):
                self._tombstones.of(tables(TOMBSTONES)).join(connection, tombstoned)
                stored = rows.stored(connection, list(versions), tables)
                gone = [each for each in stored if each.version <= versions[each.id]]
                rows.delete(connection, gone, tables)
                counts.append(len(gone))
            return counts[0]

        if not versions:
            return 0
        with self.writing():
            return self._file.write(work)

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

        def work(connection: sqlite3.Connection) -> None:
            for tables in tables_of.every(connection):
                sqlite_index_segments.compact(connection, tables)

        with self.writing():
            self._file.write(work)
            self._file.rewrite()

    def identity(self) -> str:
        return self._file.read(lambda connection: tables_of.mark_of(connection, VersionState.IN_USE))

    def close(self) -> None:
        self._file.close()

    def _compiled(self, query: Query) -> list[list[Interval]]:
        check_text(query)
        asked = {clause.path for clause in query.clauses if clause.path is not None}
        return compiled(query, self._paths.known(asked))
