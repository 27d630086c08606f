"""Making the embedded index again, in tables of its own beside those in use, in the same file.

Every put and every erasure goes to both while it is made (`SqliteProfileIndex`), each in one transaction, so nothing
is to be followed up.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from idgraph.model.errors import ProfileIndexError, VersionInUseError, VersionNotFoundError
from idgraph.model.index import IndexDocument
from idgraph.model.index_versions import Begun, IndexVersion, VersionState
from idgraph.model.tombstones import Tombstone, TombstoneNames
from sinks.sqlite import tombstones as sqlite_tombstones
from sinks.sqlite.index import documents as rows
from sinks.sqlite.index import tables as sqlite_index_tables
from sinks.sqlite.index.blocks import build
from sinks.sqlite.index.index import index_file
from sinks.sqlite.index.paths import IndexPaths
from sinks.sqlite.index.tables import TOMBSTONES, name_of, tables_of
from sinks.sqlite.tombstones import SqliteTombstones


class SqliteIndexVersions:
    """The `IndexVersions` of the index in one file."""

    def __init__(self, path: str | Path, names: TombstoneNames | None = None) -> None:
        self._file = index_file(path)
        self._tombstones = SqliteTombstones(names, ProfileIndexError)
        self._paths = IndexPaths(self._file)
        self._number = 0

    def begin(self, anew: bool = False) -> Begun:
        def work(connection: sqlite3.Connection) -> tuple[int, str]:
            found = sqlite_index_tables.being_made(connection)
            if found is not None and anew:
                sqlite_index_tables.drop(connection, found)
                found = None
            number = sqlite_index_tables.make(connection) if found is None else found
            return number, sqlite_index_tables.mark_of(connection, VersionState.MADE)

        self._number, mark = self._file.write(work)
        return Begun(name_of(self._number), mark)

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        given, refused = rows.prepared(documents, self._paths)
        if given:
            blocks = build([each.tokens for each in given])

            def work(connection: sqlite3.Connection) -> None:
                self._require(connection)
                rows.put(connection, tables_of(self._number), given, blocks, self._tombstones)

            self._file.write(work)
        return refused

    def write_tombstones(self, tombstones: Mapping[bytes, Tombstone]) -> None:
        table = tables_of(self._number)(TOMBSTONES)
        self._file.write(lambda connection: sqlite_tombstones.join_by_name(connection, tombstones, table))

    def changed(self) -> list[str]:
        """Nothing is to be followed up."""
        return []

    def switch(self, take: Callable[[Sequence[str]], None]) -> str:  # noqa: ARG002 - nothing is left to take
        def work(connection: sqlite3.Connection) -> int:
            self._require(connection)
            return sqlite_index_tables.switch(connection, self._number)

        return name_of(self._file.write(work))

    def known(self) -> list[IndexVersion]:
        return [version for _, version in self._file.read(lambda c: list(sqlite_index_tables.listed(c)))]

    def delete(self, name: str) -> None:
        """Also out of the file, which becomes smaller by it."""

        def work(connection: sqlite3.Connection) -> None:
            for number, version in sqlite_index_tables.listed(connection):
                if version.name == name:
                    if version.state is VersionState.IN_USE:
                        raise VersionInUseError(f"{self._file.path}: {name} is in use")
                    sqlite_index_tables.drop(connection, number)
                    return
            raise VersionNotFoundError(f"{self._file.path}: there is no version {name}")

        self._file.write(work)
        self._file.rewrite()

    def close(self) -> None:
        self._file.close()

    def _require(self, connection: sqlite3.Connection) -> None:
        if sqlite_index_tables.being_made(connection) != self._number:
            raise ProfileIndexError(
                f"{self._file.path}: {name_of(self._number)} is made no more: somebody else finished or deleted it"
            )
