"""The segments of the index in its file: written, looked into, and merged so that they stay few.

A put writes one segment of its documents, whose numbers follow one another. What is replaced or deleted only loses its
row in `documents`: its postings stay until its segment is merged, and no search sees them. Each function runs
within one transaction of the caller's, on the tables of one version of the index.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from idgraph.model.errors import ProfileIndexError
from idgraph.native import Part
from sinks.sqlite.index import blocks as sqlite_index_blocks
from sinks.sqlite.index.blocks import Block
from sinks.sqlite.index.queries import Interval
from sinks.sqlite.index.tables import IN_USE, Tables

FAN_IN = 8
"""Segments of like size that become one."""
FULL_BYTES = 16 << 20
"""A segment of so many is merged no more, so that no merge holds the lock for long."""


class Segment(NamedTuple):
    """A row of `segments`."""

    first: int
    behind: int
    documents: int
    alive: int
    bytes: int

    @property
    def weight(self) -> int:
        """How many bytes a merge would leave of it, about."""
        return self.bytes * self.alive // self.documents + 1 if self.documents else 1


def next_number(connection: sqlite3.Connection, tables: Tables = IN_USE) -> int:
    """The number for the first document of the next segment."""
    row = connection.execute(tables("SELECT behind FROM segments@ ORDER BY first DESC LIMIT 1")).fetchone()
    return row[0] if row is not None else 1


def write(
    connection: sqlite3.Connection,
    first: int,
    documents: int,
    blocks: Sequence[Block],
    tables: Tables = IN_USE,
) -> None:
    """Write the segment of some documents, the numbers of which begin with `first`."""
    _write(connection, tables, first, first + documents, documents, blocks)


def write_tombstones(connection: sqlite3.Connection, numbers: Iterable[int], tables: Tables = IN_USE) -> None:
    """Count documents as gone whose row is replaced or deleted."""
    firsts = [each.first for each in _all(connection, tables)]
    gone = Counter(firsts[bisect_right(firsts, number) - 1] for number in numbers)
    connection.executemany(
        tables("UPDATE segments@ SET alive = alive - ? WHERE first = ?"),
        [(count, first) for first, count in gone.items()],
    )


def having(connection: sqlite3.Connection, intervals: Iterable[Interval]) -> set[int]:
    """The numbers of documents with a token in one of these; some may be gone. Raises ProfileIndexError for damage."""
    found: set[int] = set()
    for lower, upper in intervals:
        for first, data in connection.execute(_BLOCKS_OF_INTERVAL, {"lower": lower, "upper": upper}):
            try:
                found.update(sqlite_index_blocks.find(data, lower, upper, first))
            except ValueError as error:
                raise damaged(error) from None
    return found


# A token stands in the last block of its segment that does not begin behind it. CROSS: segments first, of which there
# are few; left to itself SQLite walks all blocks.
_BLOCKS_OF_INTERVAL = """
    SELECT first, data FROM segments CROSS JOIN blocks ON segment = first
    AND token >= coalesce((SELECT max(token) FROM blocks WHERE segment = first AND token <= :lower), x'')
    AND token < :upper"""


def merge(connection: sqlite3.Connection, tables: Tables = IN_USE) -> None:
    """Merge what should be: where many segments of like size stand together, or most of one is gone."""
    while run := next_merge(_all(connection, tables)):
        _merge(connection, tables, run)


def compact(connection: sqlite3.Connection, tables: Tables = IN_USE) -> None:
    """Rewrite each segment of which something is gone."""
    for segment in _all(connection, tables):
        if segment.alive < segment.documents:
            _merge(connection, tables, [segment])


def next_merge(segments: Sequence[Segment]) -> list[Segment]:
    """Neighbours to be merged now, the smallest first; none where all is well."""
    for segment in segments:
        if 2 * segment.alive < segment.documents:
            return [segment]
    # By powers of eight: the smaller ones are merged among themselves before they meet a larger one.
    tiers = [each.weight.bit_length() // 3 for each in segments]
    for tier in sorted(set(tiers)):
        run: list[Segment] = []
        for segment, own in zip(segments, tiers, strict=True):
            if own > tier or segment.weight >= FULL_BYTES:
                run = []
                continue
            run.append(segment)
            if _is_worth_it([each.weight for each in run]):
                return run
    return []


def _is_worth_it(weights: Sequence[int]) -> bool:
    # Much is not written again for the sake of a little.
    whole, largest = sum(weights), max(weights)
    return (len(weights) >= FAN_IN and whole >= 3 * largest) or (
        whole >= FULL_BYTES and 2 * whole >= 3 * largest
    )


def _all(connection: sqlite3.Connection, tables: Tables) -> list[Segment]:
    rows = connection.execute(
        tables("SELECT first, behind, documents, alive, bytes FROM segments@ ORDER BY first")
    )
    return [Segment._make(row) for row in rows]


def _merge(connection: sqlite3.Connection, tables: Tables, run: Sequence[Segment]) -> None:
    first = run[0].first
    parts = tuple(_part(connection, tables, each, first) for each in run if each.alive)
    try:
        blocks = sqlite_index_blocks.merge(parts)
    except ValueError as error:
        raise damaged(error) from None
    rows = [(each.first,) for each in run]
    connection.executemany(tables("DELETE FROM blocks@ WHERE segment = ?"), rows)
    connection.executemany(tables("DELETE FROM segments@ WHERE first = ?"), rows)
    if parts:
        _write(connection, tables, first, run[-1].behind, sum(each.alive for each in run), blocks)


def _part(connection: sqlite3.Connection, tables: Tables, segment: Segment, first: int) -> Part:
    query = tables("SELECT data FROM blocks@ WHERE segment = ? ORDER BY token")
    blocks = connection.execute(query, (segment.first,))
    alive = None if segment.alive == segment.documents else _alive(connection, tables, segment)
    return tuple(row[0] for row in blocks), segment.first - first, alive


def _alive(connection: sqlite3.Connection, tables: Tables, segment: Segment) -> bytes:
    alive = bytearray(segment.behind - segment.first)
    query = tables("SELECT number FROM documents@ WHERE number >= ? AND number < ?")
    for (number,) in connection.execute(query, (segment.first, segment.behind)):
        alive[number - segment.first] = 1
    return bytes(alive)


def _write(
    connection: sqlite3.Connection,
    tables: Tables,
    first: int,
    behind: int,
    documents: int,
    blocks: Sequence[Block],
) -> None:
    size = sum(len(data) for _, data in blocks)
    connection.execute(
        tables("INSERT INTO segments@ VALUES (?, ?, ?, ?, ?)"), (first, behind, documents, documents, size)
    )
    connection.executemany(
        tables("INSERT INTO blocks@ VALUES (?, ?, ?)"), ((first, token, data) for token, data in blocks)
    )


def damaged(error: ValueError) -> ProfileIndexError:
    """What is informed of a block that cannot be read."""
    return ProfileIndexError(f"the index has {error}; `idgraph reindex` makes it again")
