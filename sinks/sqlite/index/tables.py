"""The versions of the index in one file: the one in use, one that is being made beside it, those that were replaced.

Each version has tables of its own; what its documents share with the others, the numbers of paths,
stands once. Taking another version's place is a change of names in one transaction, so every process
follows it with its next one. Each function runs within one transaction of the caller's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from typing import NamedTuple

from idgraph.model.index_versions import IndexVersion, VersionState
from sinks.sqlite import tombstones as sqlite_tombstones
from sinks.sqlite.schema import Step


class Tables(NamedTuple):
    """The tables of one version."""

    suffix: str = ""

    def __call__(self, statement: str) -> str:
        """A statement on these tables: in it `@` stands behind their names."""
        return statement.replace("@", self.suffix)


IN_USE = Tables()
"""Of the version in use, so that nobody who writes or searches has to look for it."""

MIGRATION: tuple[Step, ...] = (
    # No number is given out twice.
    "CREATE TABLE versions (number INTEGER PRIMARY KEY AUTOINCREMENT, state TEXT NOT NULL)",
    f"INSERT INTO versions (state) VALUES ('{VersionState.IN_USE}')",  # noqa: S608 - ours
)

MARKS: tuple[Step, ...] = (
    # Numbers begin again in a file that is rebuilt.
    "ALTER TABLE versions ADD COLUMN mark TEXT NOT NULL DEFAULT ''",
    "UPDATE versions SET mark = hex(randomblob(8))",
)

TOMBSTONES = f"{sqlite_tombstones.NAME}@"

# `first` and `behind` bound the numbers of a segment's documents: each is in one segment, and none is given out
# twice while a segment has postings of it. `documents` were written, of which `alive` are still there.
SEGMENT_TABLES = (
    """CREATE TABLE segments@ (
        first INTEGER PRIMARY KEY,
        behind INTEGER NOT NULL,
        documents INTEGER NOT NULL,
        alive INTEGER NOT NULL,
        bytes INTEGER NOT NULL)""",
    """CREATE TABLE blocks@ (
        segment INTEGER NOT NULL,
        token BLOB NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (segment, token))""",
)
_TABLES = (
    """CREATE TABLE documents@ (
        number INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        version INTEGER NOT NULL,
        content BLOB)""",
    *SEGMENT_TABLES,
    sqlite_tombstones.TABLE.replace(sqlite_tombstones.NAME, TOMBSTONES),
)
_NAMES = ("documents@", "segments@", "blocks@", TOMBSTONES)


def name_of(number: int) -> str:
    """As people call a version."""
    return f"index-{number:06d}"


def tables_of(number: int) -> Tables:
    """The tables of a version that is not in use."""
    return Tables(f"_{number}")


def written(connection: sqlite3.Connection) -> list[Tables]:
    """What a write goes to: the version in use, and one that is being made."""
    return [tables for tables, state in _all(connection) if state is not VersionState.REPLACED]


def every(connection: sqlite3.Connection) -> list[Tables]:
    """The tables of all versions, first of the one in use."""
    return [tables for tables, _ in _all(connection)]


def being_made(connection: sqlite3.Connection) -> int | None:
    """The number of the version that is being made."""
    row = connection.execute("SELECT number FROM versions WHERE state = ?", (VersionState.MADE,)).fetchone()
    return None if row is None else int(row[0])


def mark_of(connection: sqlite3.Connection, state: VersionState) -> str:
    """What reports the version that is in use, or is being made, from those of other files too."""
    return str(connection.execute("SELECT mark FROM versions WHERE state = ?", (state,)).fetchone()[0])


def make(connection: sqlite3.Connection) -> int:
    """Begin another version; gives its number."""
    added = connection.execute(
        "INSERT INTO versions (state, mark) VALUES (?, hex(randomblob(8)))", (VersionState.MADE,)
    )
    number = int(added.lastrowid or 0)
    for statement in _TABLES:
        connection.execute(tables_of(number)(statement))
    return number


def drop(connection: sqlite3.Connection, number: int) -> None:
    """Remove a version that is not in use."""
    for name in _NAMES:
        connection.execute(tables_of(number)(f"DROP TABLE {name}"))
    connection.execute("DELETE FROM versions WHERE number = ?", (number,))


def switch(connection: sqlite3.Connection, number: int) -> int:
    """Put the version that is being made in the place of the one in use; gives the number of that one."""
    (before,) = connection.execute(
        "SELECT number FROM versions WHERE state = ?", (VersionState.IN_USE,)
    ).fetchone()
    for name in _NAMES:
        connection.execute(f"ALTER TABLE {IN_USE(name)} RENAME TO {tables_of(before)(name)}")
        connection.execute(f"ALTER TABLE {tables_of(number)(name)} RENAME TO {IN_USE(name)}")
    for which, state in ((before, VersionState.REPLACED), (number, VersionState.IN_USE)):
        connection.execute("UPDATE versions SET state = ? WHERE number = ?", (state, which))
    return int(before)


def listed(connection: sqlite3.Connection) -> Iterator[tuple[int, IndexVersion]]:
    """All versions by their numbers."""
    for number, reported in connection.execute(
        "SELECT number, state FROM versions ORDER BY number"
    ).fetchall():
        state = VersionState(reported)
        tables = IN_USE if state is VersionState.IN_USE else tables_of(number)
        count = connection.execute(tables("SELECT count(*) FROM documents@")).fetchone()[0]
        yield number, IndexVersion(name_of(number), state, int(count))


def _all(connection: sqlite3.Connection) -> list[tuple[Tables, VersionState]]:
    rows = connection.execute(
        "SELECT number, state FROM versions ORDER BY state = ? DESC", (VersionState.IN_USE,)
    )
    return [
        (IN_USE if state == VersionState.IN_USE else tables_of(number), VersionState(state))
        for number, state in rows
    ]
