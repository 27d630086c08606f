"""Wrapped data keys in a file of their own, apart from the fragments they protect.

Deleting a key empties the log; `compact` writes the file again, so that no copy of it stays behind.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from idgraph.model.errors import ClosedVersionError, StoreError
from sinks.sqlite.database import SqliteFile, among
from sinks.sqlite.schema import Schema
from transforms.privacy.keys import WrappedKey

_SCHEMA = Schema(
    application_id=0x6964676B,
    migrations=(
        (
            """CREATE TABLE data_keys (
                fragment TEXT PRIMARY KEY,
                kek_version INTEGER NOT NULL,
                wrapped BLOB NOT NULL) WITHOUT ROWID""",
            # In this file, because one file has one writer: what was counted after a version was closed stays.
            "CREATE TABLE closed_versions (kek_version INTEGER PRIMARY KEY)",
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
        def insert_absent(connection: sqlite3.Connection) -> dict[str, WrappedKey]:
            self._refuse_closed(connection, keys.values())
            stored = connection.executemany(
                "INSERT OR IGNORE INTO data_keys VALUES (?, ?, ?)",
                sorted((fragment, key.kek_version, key.wrapped) for fragment, key in keys.items()),
            ).rowcount
            # Nearly always nobody else made one in between: nothing to be read then.
            return dict(keys) if stored == len(keys) else _get(connection, list(keys))

        return self._file.write(insert_absent) if keys else {}

    def replace(self, keys: Mapping[str, tuple[WrappedKey, WrappedKey]]) -> int:
        def update_keys(connection: sqlite3.Connection) -> int:
            self._refuse_closed(connection, [new for _, new in keys.values()])
            return connection.executemany(
                "UPDATE data_keys SET kek_version = ?, wrapped = ? "
                "WHERE fragment = ? AND kek_version = ? AND wrapped = ?",
                sorted((*new, fragment, *old) for fragment, (old, new) in keys.items()),
            ).rowcount

        return self._file.write(update_keys) if keys else 0

    def wrapped_by(self, version: int, after: str, limit: int) -> dict[str, WrappedKey]:
        return self._file.read(
            lambda connection: {
                fragment: WrappedKey(version, wrapped)
                for fragment, wrapped in connection.execute(
                    "SELECT fragment, wrapped FROM data_keys "
                    "WHERE fragment > ? AND kek_version = ? ORDER BY fragment LIMIT ?",
                    (after, version, limit),
                )
            }
        )

    def some(self, limit: int) -> dict[str, WrappedKey]:
        return self._file.read(
            lambda connection: {
                fragment: WrappedKey(version, wrapped)
                for fragment, version, wrapped in connection.execute(
                    "SELECT fragment, kek_version, wrapped FROM data_keys LIMIT ?", (limit,)
                )
            }
        )

    def counts(self) -> dict[int, int]:
        return self._file.read(
            lambda connection: dict(
                connection.execute("SELECT kek_version, count(*) FROM data_keys GROUP BY kek_version")
            )
        )

    def close_versions(self, versions: Iterable[int]) -> None:
        rows = [(version,) for version in versions]
        self._file.write(
            lambda connection: connection.executemany(
                "INSERT OR IGNORE INTO closed_versions VALUES (?)", rows
            )
        )

    def delete(self, fragment_ids: Sequence[str], kept: Callable[[], Collection[str]] = frozenset) -> int:
        """Also raises StoreError when the keys are gone but a copy is still in the log; delete again."""

        def delete_keys(connection: sqlite3.Connection) -> int:
            skipped = kept()
            return connection.executemany(
                "DELETE FROM data_keys WHERE fragment = ?",
                [(fragment,) for fragment in fragment_ids if fragment not in skipped],
            ).rowcount

        if not fragment_ids:
            return 0
        deleted = max(self._file.write(delete_keys), 0)
        # Also when there was none: a delete before this one may have been interrupted.
        self._file.truncate_log()
        return deleted

    def compact(self) -> None:
        self._file.rewrite()

    def hold(self, fragment_ids: Sequence[str]) -> AbstractContextManager[dict[str, WrappedKey]]:
        return self._file.without_writers(lambda connection: _get(connection, fragment_ids))

    def close(self) -> None:
        self._file.close()

    def _refuse_closed(self, connection: sqlite3.Connection, keys: Iterable[WrappedKey]) -> None:
        closed = {version for (version,) in connection.execute("SELECT kek_version FROM closed_versions")}
        for version in sorted(closed & {key.kek_version for key in keys}):
            raise ClosedVersionError(
                f"{self._file.path}: key version {version} was rotated out; if this keeps coming, the keyring "
                "is older than this file: restore the newer one"
            )


def _get(connection: sqlite3.Connection, fragments: Sequence[str]) -> dict[str, WrappedKey]:
    query = "SELECT fragment, kek_version, wrapped FROM data_keys WHERE fragment"
    return {row[0]: WrappedKey(row[1], row[2]) for row in among(connection, query, fragments)}
