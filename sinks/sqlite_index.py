"""The embedded profile index: one SQLite file, one full-text table that answers every kind of clause.

See docs/adr/0003-profile-index.md for why terms and ranges are tokens too.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from merge.index import IndexDocument, SearchPage
from merge.tombstones import UNJUDGED, Tombstone, TombstoneNames
from model.errors import ProfileIndexError
from model.queries import Query
from sinks import sqlite_tombstones
from sinks.index_values import check_text, is_unicode
from sinks.sqlite_files import SqliteFile, chunks, marks
from sinks.sqlite_index_queries import Compiled, compiled, cursor_after, read_cursor
from sinks.sqlite_index_tokens import PathTokens, Tokenizer
from sinks.sqlite_schema import Schema
from sinks.sqlite_tombstones import SqliteTombstones

# detail=none and no columnsize: a row is a bare set of tokens; no positions, no ranking. The tokens of a
# document stay beside it, so that an update touches only those that came or went.
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
            "CREATE VIRTUAL TABLE words USING fts5(tokens, content='', detail=none, columnsize=0, tokenize='ascii')",
            "CREATE VIRTUAL TABLE vocabulary USING fts5vocab(words, instance)",
            # How much one transaction may gather in memory before it is written as a segment.
            "INSERT INTO words (words, rank) VALUES ('hashsize', 16777216)",
            # Fewer, larger merges of segments than by default (4): writes are many and queries look at few.
            "INSERT INTO words (words, rank) VALUES ('automerge', 8)",
        ),
        (sqlite_tombstones.TABLE,),
    ),
    settings=("PRAGMA wal_autocheckpoint = 4000", "PRAGMA cache_size = -32768"),
    modules=("fts5", "fts5vocab"),
)


MOST_PATHS = 200_000
"""How many paths' numbers a process remembers; more are read again."""


class _Prepared(NamedTuple):
    id: str
    version: int
    tokens: str


class SqliteProfileIndex:
    """A `ProfileIndex` in one file, made when first used, for the owner only.

    A document of the version that is there replaces it too: policy may have changed what may be indexed.
    A deleted document leaves nothing that a search finds; `compact` also takes it out of the file.
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
            self._file.write(lambda connection: _put(connection, self._alive(connection, newest)))
        return refused

    def delete(self, ids: Sequence[str]) -> None:
        if ids:
            self._file.write(lambda connection: _delete(connection, ids))

    def holds(self, ids: Sequence[str]) -> set[str]:
        return {each.id for each in self._file.read(lambda connection: _stored(connection, ids))}

    def erase(self, versions: Mapping[str, int]) -> int:
        def work(connection: sqlite3.Connection) -> int:
            stored = _stored(connection, list(versions))
            gone = [each.id for each in stored if each.version <= versions[each.id]]
            buried = {each: Tombstone(UNJUDGED, version) for each, version in versions.items()}
            self._tombstones.join(connection, buried)
            _delete(connection, gone)
            return len(gone)

        return self._file.write(work) if versions else 0

    def search(self, query: Query, limit: int = 20, cursor: str | None = None) -> SearchPage:
        after = "" if cursor is None else read_cursor(cursor)
        matched, values = self._compiled(query)
        where = "" if matched is None else f"number IN ({matched}) AND "
        rows = self._file.read(
            lambda connection: connection.execute(
                f"SELECT id FROM documents WHERE {where}id > ? ORDER BY id LIMIT ?",  # noqa: S608 - ours
                (*values, after, limit + 1),
            ).fetchall()
        )
        ids = [row[0] for row in rows[:limit]]
        return SearchPage(ids, cursor_after(ids[-1]) if len(rows) > limit and ids else None)

    def count(self, query: Query) -> int:
        matched, values = self._compiled(query)
        source = "documents" if matched is None else f"({matched})"
        return int(
            self._file.read(
                lambda connection: connection.execute(f"SELECT count(*) FROM {source}", values).fetchone()  # noqa: S608 - ours
            )[0]
        )

    def compact(self) -> None:
        """Rewrite the full-text table so that nothing deleted is left in the file. Slow: it holds the write
        lock for as long as reading the whole table takes."""
        self._file.write(
            lambda connection: connection.execute("INSERT INTO words (words) VALUES ('optimize')")
        )
        self._file.truncate_log()

    def close(self) -> None:
        self._file.close()

    def _alive(self, connection: sqlite3.Connection, documents: dict[str, _Prepared]) -> dict[str, _Prepared]:
        """The documents that were not erased."""
        buried = self._tombstones.find(connection, documents)
        if not buried:
            return documents
        return {
            each: document
            for each, document in documents.items()
            if each not in buried or document.version > buried[each].version
        }

    def _compiled(self, query: Query) -> Compiled:
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
    tokens: str


def _stored(connection: sqlite3.Connection, ids: Sequence[str]) -> list[_Stored]:
    return [
        _Stored._make(row)
        for chunk in chunks(ids)
        for row in connection.execute(
            f"SELECT id, number, version, tokens FROM documents WHERE id IN ({marks(len(chunk))})",  # noqa: S608 - marks only
            chunk,
        )
    ]


def _put(connection: sqlite3.Connection, newest: dict[str, _Prepared]) -> None:
    stored = _stored(connection, list(newest))
    number = connection.execute("SELECT coalesce(max(number), 0) FROM documents").fetchone()[0]
    updates: list[tuple[int, str, int]] = []
    inserts: list[tuple[int, str, int, str]] = []
    # (command, row, tokens), rows ascending: the full-text table writes a segment whenever they go back.
    changes: list[tuple[str | None, int, str]] = []
    for old in sorted(stored, key=_number_of):
        document = newest[old.id]
        if document.version < old.version:
            continue
        before, after = _lines(old.tokens), _lines(document.tokens)
        gone = before - after
        come = after - before
        if gone or come:
            updates.append((document.version, document.tokens, old.number))
            if gone:
                changes.append(("delete", old.number, "\n".join(gone)))
            # Also when nothing came: the table counts rows, and each delete takes one off.
            changes.append((None, old.number, "\n".join(come)))
        elif document.version > old.version:
            updates.append((document.version, old.tokens, old.number))
    known = {old.id for old in stored}
    for document in sorted(each for each in newest.values() if each.id not in known):
        number += 1
        inserts.append((number, document.id, document.version, document.tokens))
        changes.append((None, number, document.tokens))
    connection.executemany("UPDATE documents SET version = ?, tokens = ? WHERE number = ?", updates)
    connection.executemany("INSERT INTO documents VALUES (?, ?, ?, ?)", inserts)
    connection.executemany("INSERT INTO words (words, rowid, tokens) VALUES (?, ?, ?)", changes)


def _lines(tokens: str) -> set[str]:
    return set(tokens.split("\n")) if tokens else set()


def _delete(connection: sqlite3.Connection, ids: Sequence[str]) -> None:
    stored = sorted(_stored(connection, ids), key=_number_of)
    connection.executemany(
        "INSERT INTO words (words, rowid, tokens) VALUES ('delete', ?, ?)",
        [(old.number, old.tokens) for old in stored],
    )
    connection.executemany("DELETE FROM documents WHERE number = ?", [(old.number,) for old in stored])


def _number_of(stored: _Stored) -> int:
    return stored.number
