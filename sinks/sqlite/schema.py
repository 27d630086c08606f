"""Checks of an SQLite file before its use: whose it is, its version, its permissions."""

from __future__ import annotations

import os
import sqlite3
import stat
from contextlib import closing, suppress
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from idgraph.model.database_errors import reason_of
from idgraph.model.errors import IdgraphError, StoreError
from idgraph.model.formats import require_format

OWNER_ONLY = 0o600
_OLDER = (
    "keep using the idgraph that wrote it, or begin a new `directory` and run over the source files again"
)
_PAGE_SIZE = 4096
_OURS = 0x6964
"""Each `application_id` begins with it."""


class Schema(NamedTuple):
    """Tables of one kind of file. `migrations[n]` are the statements that lead from version n to n + 1.

    `application_id` reports this kind of file from all others, so that no store opens another's file.
    `settings` are statements that run on every connection.
    """

    application_id: int
    migrations: tuple[tuple[str, ...], ...]
    settings: tuple[str, ...] = ()

    @property
    def version(self) -> int:
        return len(self.migrations)


def create_private(path: Path) -> None:
    """Make the file, readable by its owner only, in a folder of its owner only; both may exist.

    SQLite gives the permissions of the database to the files it puts beside it (-wal, -shm). Raises OSError.
    """
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, OWNER_ONLY))
    except FileExistsError:
        # Not opened here: closing a second descriptor would drop this process's locks on the file.
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            with suppress(PermissionError):
                path.chmod(OWNER_ONLY)


def prepare(connection: sqlite3.Connection, path: Path, schema: Schema, refusal: type[IdgraphError]) -> None:
    """Set the connection up and bring the file to the schema's version.

    Raises `refusal` for a file of another kind or of a newer version, sqlite3.Error for what SQLite says.
    """
    # A lost write is worse than a slow one: the stream's checkpoint may not run ahead of the store when the
    # power goes, so every commit reaches the disk (FULL).
    connection.execute(f"PRAGMA page_size = {_PAGE_SIZE}")
    connection.execute("PRAGMA secure_delete = ON")
    connection.execute("PRAGMA temp_store = MEMORY")
    # In one transaction: another process may be making the tables right now.
    connection.execute("BEGIN")
    _check_kind(connection, path, schema, refusal)
    connection.execute("COMMIT")
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    for statement in schema.settings:
        connection.execute(statement)
    if _number(connection, "PRAGMA user_version") < schema.version:
        _migrate(connection, path, schema, refusal)


def format_of(path: Path) -> int:
    """The version of a file, which is not changed. Raises StoreError for one that cannot be read, or is not ours."""
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True)) as connection:
            owner, version = (
                _number(connection, f"PRAGMA {each}") for each in ("application_id", "user_version")
            )
    except sqlite3.Error as error:
        raise StoreError(f"{path}: {reason_of(error)}") from None
    if owner >> 16 != _OURS:
        raise StoreError(f"{path}: holds something else; name a file of its own")
    return version


def copy_database(file: Path, target: Path) -> None:
    """Copy a file that others write to, as it is at one moment, to a new one without a log. They go on meanwhile. Raises StoreError."""
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(file))}?mode=ro", uri=True)) as source,
            closing(sqlite3.connect(target)) as copied,
        ):
            # All at once: in steps it would begin again at each write of others.
            source.backup(copied)
            copied.execute("PRAGMA journal_mode = DELETE")
            (found,) = copied.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.Error as error:
        raise StoreError(f"{file}: {reason_of(error)}") from None
    if found != "ok":
        raise StoreError(f"{file}: is damaged; restore it from an earlier backup")


def _check_kind(
    connection: sqlite3.Connection, path: Path, schema: Schema, refusal: type[IdgraphError]
) -> int:
    version = _number(connection, "PRAGMA user_version")
    owner = _number(connection, "PRAGMA application_id")
    if owner != schema.application_id and (
        owner or version or _number(connection, "SELECT count(*) FROM sqlite_master")
    ):
        raise refusal(f"{path}: holds something else; name a file of its own")
    is_known = version > schema.version or _expected(schema, version) <= _definitions(connection)
    require_format(path, version if is_known else 0, schema.version, refusal, _OLDER, oldest=min(1, version))
    return version


@lru_cache
def _expected(schema: Schema, version: int) -> set[str]:
    """The definitions of a file of this version. Files of before the first release have other ones under its number."""
    with closing(sqlite3.connect(":memory:")) as connection:
        for statements in schema.migrations[:version]:
            for statement in statements:
                connection.execute(statement)
        return _definitions(connection)


def _definitions(connection: sqlite3.Connection) -> set[str]:
    found = connection.execute("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL")
    return {" ".join(sql.split()) for (sql,) in found}


def _migrate(connection: sqlite3.Connection, path: Path, schema: Schema, refusal: type[IdgraphError]) -> None:
    connection.execute("BEGIN IMMEDIATE")
    # Looked at again under the lock: another process may have been first.
    version = _check_kind(connection, path, schema, refusal)
    for statements in schema.migrations[version:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {schema.application_id}")
    connection.execute(f"PRAGMA user_version = {schema.version}")
    connection.execute("COMMIT")


def _number(connection: sqlite3.Connection, query: str) -> int:
    return int(connection.execute(query).fetchone()[0])
