"""Which documents of the index a search finds: by their numbers in the segments, of which those count that are there.

Each function runs within one transaction of the caller's.
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

from sinks.sqlite.database import chunks, marks
from sinks.sqlite.index import segments as sqlite_index_segments
from sinks.sqlite.index.queries import Interval

_MANY = 1000
"""Matches of which not all are looked at for each page, if others come first."""


def matching(connection: sqlite3.Connection, intervals: Sequence[Sequence[Interval]]) -> set[int] | None:
    """The numbers of documents that have a token of each, some of them gone; None for all there are."""
    found: set[int] | None = None
    for each in intervals:
        having = sqlite_index_segments.having(connection, each)
        found = having if found is None else found & having
        if not found:
            break
    return found


def first_ids(connection: sqlite3.Connection, found: set[int], after: str, wanted: int) -> list[str]:
    """The first ids behind one of documents of these numbers."""
    # Of many numbers a few are soon met among all documents in their order; if not, all that were found are read.
    if len(found) > _MANY:
        rows = connection.execute(
            "SELECT number, id FROM documents WHERE id > ? ORDER BY id LIMIT ?", (after, len(found))
        )
        met = list(islice((each for number, each in rows if number in found), wanted))
        if len(met) == wanted:
            return met
    ids = (row[0] for row in _of_numbers(connection, "id", found))
    return heapq.nsmallest(wanted, (each for each in ids if each > after))


def how_many(connection: sqlite3.Connection, found: set[int]) -> int:
    """How many of these numbers are of documents that are there."""
    return sum(row[0] for row in _of_numbers(connection, "count(*)", found))


def _of_numbers(connection: sqlite3.Connection, what: str, numbers: Iterable[int]) -> Iterator[Any]:
    """What is asked of the documents of these numbers that are not gone, some hundred after the other."""
    for chunk in chunks(sorted(numbers)):
        query = f"SELECT {what} FROM documents WHERE number IN ({marks(len(chunk))})"  # noqa: S608 - ours
        yield from connection.execute(query, chunk)
