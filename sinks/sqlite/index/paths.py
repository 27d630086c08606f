"""The numbers of the index's paths, which tokens begin with: given out once, and remembered by each process."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence

from idgraph.model.errors import DamagedStateError
from idgraph.model.index import IndexDocument
from sinks.index_values import is_unicode
from sinks.sqlite.database import SqliteFile, chunks, marks
from sinks.sqlite.index.tokens import MOST_PATHS, PathTokens, Tokenizer


class IndexPaths:
    """The paths of one file. Safe for several threads."""

    def __init__(self, file: SqliteFile) -> None:
        self._file = file
        # Numbers are given out once and never change, so what is here stays true.
        self._paths: dict[str, PathTokens] = {}
        self._tokenizer = Tokenizer(self._paths)

    def known(self, asked: set[str]) -> Mapping[str, PathTokens]:
        """What tokens begin with of those of these paths that the index has seen, and of others."""
        known = self._paths
        if not asked <= known.keys():
            known.update(self._file.read(lambda connection: _paths(connection, asked)))
        return known

    def learn(self, documents: Sequence[IndexDocument]) -> Tokenizer:
        """A tokenizer that knows the paths of these documents, but for those that are no valid Unicode."""
        if len(self._paths) > MOST_PATHS:
            self._forget()
        known, tokenizer = self._paths, self._tokenizer
        new = {path for each in documents for path in _new_paths(each, known)}
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

    def _forget(self) -> None:
        # New objects: another thread may be in the middle of using the old ones.
        self._paths = {}
        self._tokenizer = Tokenizer(self._paths)


def _new_paths(document: IndexDocument, known: Mapping[str, PathTokens]) -> Iterable[str]:
    try:
        return () if document.fields.keys() <= known.keys() else document.fields
    except DamagedStateError:
        # Who asks for its tokens is reported.
        return ()


def _paths(connection: sqlite3.Connection, paths: Iterable[str]) -> dict[str, PathTokens]:
    return {
        path: PathTokens.of(number)
        for chunk in chunks(list(paths))
        for path, number in connection.execute(
            f"SELECT path, number FROM paths WHERE path IN ({marks(len(chunk))})",  # noqa: S608 - marks only
            chunk,
        )
    }
