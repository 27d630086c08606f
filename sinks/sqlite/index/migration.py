"""From the index that stood in a full-text table of SQLite's to segments of our own."""

from __future__ import annotations

import sqlite3
from itertools import islice

from idgraph.model.errors import ProfileIndexError
from sinks.sqlite import schema as sqlite_schema
from sinks.sqlite.index import segments as sqlite_index_segments
from sinks.sqlite.index.blocks import build
from sinks.sqlite.index.tables import IN_USE, SEGMENT_TABLES
from sinks.sqlite.index.tokens import LONG, PathTokens, packed

_AT_ONCE = 4000
_LONG_BEFORE = "\x90"


def to_segments(connection: sqlite3.Connection) -> None:
    """Make the tables of segments; where there was a full-text table, out of the tokens beside its documents.

    Raises ProfileIndexError where this SQLite cannot take the full-text table away.
    """
    for statement in SEGMENT_TABLES:
        connection.execute(IN_USE(statement))
    connection.execute("ALTER TABLE documents RENAME TO before")
    connection.execute(
        """CREATE TABLE documents (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            version INTEGER NOT NULL)"""
    )
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'words'").fetchone():
        _take_over(connection)
    connection.execute("DROP TABLE before")


def _take_over(connection: sqlite3.Connection) -> None:
    if "fts5" not in sqlite_schema.modules(connection):
        raise ProfileIndexError(
            f"the index is of an earlier idgraph, and the SQLite of this Python ({sqlite3.sqlite_version}) was built "
            "without fts5, which it needs to be taken over; use a Python whose SQLite has it, once"
        )
    rows = connection.execute("SELECT id, version, tokens FROM before ORDER BY number")
    first = 1
    while some := list(islice(rows, _AT_ONCE)):
        connection.executemany(
            "INSERT INTO documents VALUES (?, ?, ?)",
            [(first + place, row[0], row[1]) for place, row in enumerate(some)],
        )
        sqlite_index_segments.write(connection, first, len(some), build([_packed(row[2]) for row in some]))
        first += len(some)
        sqlite_index_segments.merge(connection)
    connection.execute("DROP TABLE vocabulary")
    connection.execute("DROP TABLE words")


def _packed(tokens: str) -> bytes:
    return packed(_token(each) for each in tokens.split())


def _token(before: str) -> bytes:
    for marker, part in (("\x80", None), ("\x81", "text"), ("\x82", "number"), ("\x83", "boolean")):
        left, found, right = before.partition(marker)
        if not found:
            continue
        if part is None:
            return left.encode() + PathTokens.of(int(right)).word
        begin = PathTokens.of(int(left))
        if part == "boolean":
            return begin.boolean + right.encode()
        key, is_long, digest = right.partition(_LONG_BEFORE)
        behind = LONG + bytes.fromhex(digest) if is_long else b""
        if part == "number":
            return begin.number + bytes([int(key[0])]) + bytes.fromhex(key[1:17]) + key[17:].encode() + behind
        return begin.text + bytes.fromhex(key) + behind
    raise ProfileIndexError("the index of an earlier idgraph is damaged; delete its file and index again")
