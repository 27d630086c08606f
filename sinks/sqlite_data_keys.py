"""Wrapped data keys in a file of their own, apart from the fragments they protect.

Deleting a key overwrites it in the file and empties the log, so that no copy of it stays behind.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path

from model.errors import StoreError
from sinks.sqlite_files import SqliteFile, chunks, marks
from sinks.sqlite_schema import Schema
from transforms.keys import WrappedKey

_SCHEMA = Schema(
    application_id=0x6964676B,
    migrations=(
        (
            """CREATE TABLE data_keys (
                fragment TEXT PRIMARY KEY,
                kek_version INTEGER NOT NULL,
                wrapped BLOB NOT NULL) WITHOUT ROWID""",
        ),
    ),
)


class SqliteDataKeys:
    """A `DataKeyStore` in one file, made when first used, for the owner only."""

    def __init__(self, path: str | Path) -> None:
        self._file = SqliteFile(path, _SCHEMA, StoreError)

    def get(self, fragment_ids: Sequence[str]) -> dict[str, WrappedKey]:
        return self._file.read(lambda connection: _get(connection, fragment_ids)) if fragment_ids else {}

    def put_absent(self, keys: Mapping[str, WrappedKey]) -> dict[str, WrappedKey]:
        def work(connection: sqlite3.Connection) -> dict[str, WrappedKey]:
            connection.executemany(
                "INSERT OR IGNORE INTO data_keys VALUES (?, ?, ?)",
                sorted((fragment, key.kek_version, key.wrapped) for fragment, key in keys.items()),
            )
            return _get(connection, list(keys))

        return self._file.write(work) if keys else {}

    def delete(self, fragment_ids: Sequence[str]) -> int:
        """Also raises StoreError when the keys are gone but a copy is still in the log; delete again."""

        def work(connection: sqlite3.Connection) -> int:
            return connection.executemany(
                "DELETE FROM data_keys WHERE fragment = ?", [(fragment,) for fragment in fragment_ids]
            ).rowcount

        if not fragment_ids:
            return 0
        deleted = self._file.write(work)
        self._file.truncate_log()
        return deleted

    def close(self) -> None:
        self._file.close()


def _get(connection: sqlite3.Connection, fragments: Sequence[str]) -> dict[str, WrappedKey]:
    return {
        row[0]: WrappedKey(row[1], row[2])
        for chunk in chunks(fragments)
        for row in connection.execute(
            f"SELECT fragment, kek_version, wrapped FROM data_keys WHERE fragment IN ({marks(len(chunk))})",  # noqa: S608 - marks only
            chunk,
        )
    }
