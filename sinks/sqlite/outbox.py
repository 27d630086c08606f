"""The outbox of the profile store's file: what waits for the index, by the numbers of the fragments.

```
outbox       place (rowid), fragment UNIQUE      a fragment that was there before
outbox_runs  first (rowid), behind, place        new fragments of one write: their numbers follow one another
```

A run stands for the numbers from `first` on and below `behind`, in place of two rows of trees for each. A number waits
at one place only. A run of which a part is settled leaves what is left of it at its place in the order of waiting. Each
function runs within one transaction of the caller's.
"""

from __future__ import annotations

import sqlite3
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge
from itertools import islice, pairwise
from operator import itemgetter
from typing import NamedTuple

from idgraph.model.store import NEW, OutboxEntry
from sinks.sqlite.database import chunks, marks

TABLE = "CREATE TABLE outbox (place INTEGER PRIMARY KEY, fragment INTEGER NOT NULL UNIQUE)"
RUNS = (
    "CREATE TABLE outbox_runs (first INTEGER PRIMARY KEY, behind INTEGER NOT NULL, place INTEGER NOT NULL)",
    "CREATE INDEX outbox_runs_by_place ON outbox_runs (place)",
)

_LOOKED_INTO = 16
"""How many runs a settling looks into for what it was given; the rest is looked up one by one."""

_WALKED = 16
"""How many runs are walked before the next is looked up: a write costs by what it writes, not by how many runs wait. At
least 2, to get on."""


class _Run(NamedTuple):
    first: int
    behind: int
    place: int


def add(connection: sqlite3.Connection, first: int, behind: int, others: Iterable[int]) -> None:
    """Have new fragments wait, whose numbers go from `first` to below `behind`, and others, which may wait already."""
    place = connection.execute(_LAST_PLACE).fetchone()[0] + 1
    waiting = iter([(number,) for number in _outside_of_runs(connection, sorted(others))])
    at_its_place = "INSERT OR IGNORE INTO outbox VALUES (?, ?)"
    for (number,) in waiting:
        # Behind all runs; the others go behind it by themselves, which is quicker than to be informed where.
        if connection.execute(at_its_place, (place, number)).rowcount:
            break
    connection.executemany("INSERT OR IGNORE INTO outbox (fragment) VALUES (?)", waiting)
    if first < behind:
        _insert(connection, [_Run(first, behind, place)])


_LAST_PLACE = """
    SELECT max(coalesce((SELECT max(place) FROM outbox), 0), coalesce((SELECT max(place) FROM outbox_runs), 0))"""


def entries(connection: sqlite3.Connection, limit: int) -> list[OutboxEntry]:
    """What waits, the oldest first."""
    others = (
        "SELECT place, id, version FROM outbox JOIN fragments ON number = fragment ORDER BY place LIMIT ?"
    )
    # Crossed: the runs are walked in their order, and no further than asked for.
    runs = """
        SELECT place, id, version FROM outbox_runs CROSS JOIN fragments ON number >= first AND number < behind
        ORDER BY place LIMIT ?"""
    found = (connection.execute(query, (limit,)) for query in (others, runs))
    return [OutboxEntry(*row[1:]) for row in islice(merge(*found, key=itemgetter(0)), limit)]


def waits(connection: sqlite3.Connection, number: int) -> bool:
    """Whether the fragment of a number waits."""
    alone = connection.execute("SELECT 1 FROM outbox WHERE fragment = ?", (number,)).fetchone()
    return alone is not None or _run_of(connection, number) is not None


def settle(connection: sqlite3.Connection, settled: Sequence[OutboxEntry]) -> None:
    """Take out the fragments that were not written since the version that is settled."""
    versions: dict[str, int] = dict(settled)
    if len(versions) < len(settled):
        versions = dict(sorted(settled))
    runs = _newest_runs(connection, _LOOKED_INTO)
    for run in runs:
        # A run is read whole for what is settled of it.
        if run.behind - run.first <= len(versions) and _has_some(connection, run, versions):
            _settle_run(connection, run, versions)
    alone = connection.executemany(
        "DELETE FROM outbox WHERE fragment = (SELECT number FROM fragments WHERE id = ? AND version <= ?)",
        versions.items(),
    )
    if runs and alone.rowcount < len(versions):
        _remove_of_runs(connection, sorted(_numbers(connection, versions)))


def remove(connection: sqlite3.Connection, number: int) -> None:
    """Take a fragment out that is no more."""
    connection.execute("DELETE FROM outbox WHERE fragment = ?", (number,))
    _remove_of_runs(connection, [number])


def _remove_of_runs(connection: sqlite3.Connection, gone: Sequence[int]) -> None:
    at = 0
    while at < len(gone):
        run = _run_of(connection, gone[at])
        end = at + 1 if run is None else bisect_left(gone, run.behind, at)
        if run is not None:
            _take_from(connection, run, gone[at:end])
        at = end


def _outside_of_runs(connection: sqlite3.Connection, numbers: Sequence[int]) -> Sequence[int]:
    query = """
        SELECT first, behind FROM outbox_runs
        WHERE first >= coalesce((SELECT max(first) FROM outbox_runs WHERE first <= ?), 0) AND first <= ?
        ORDER BY first LIMIT ?"""
    outside: list[int] = []
    at = 0
    while at < len(numbers):
        runs = connection.execute(query, (numbers[at], numbers[-1], _WALKED)).fetchall()
        for first, behind in runs:
            start = bisect_left(numbers, first, at)
            outside += numbers[at:start]
            at = bisect_left(numbers, behind, start)
        if len(runs) < _WALKED:
            break
    return [*outside, *numbers[at:]]


def _newest_runs(connection: sqlite3.Connection, most: int) -> list[_Run]:
    query = "SELECT first, behind, place FROM outbox_runs ORDER BY first DESC LIMIT ?"
    return [_Run._make(row) for row in connection.execute(query, (most,))]


def _has_some(connection: sqlite3.Connection, run: _Run, versions: dict[str, int]) -> bool:
    # That of another writer has none of them.
    sample = (run.first, (run.first + run.behind) // 2, run.behind - 1)
    ids = connection.execute("SELECT id FROM fragments WHERE number IN (?, ?, ?)", sample)
    return any(fragment_id in versions for (fragment_id,) in ids)


def _settle_run(connection: sqlite3.Connection, run: _Run, versions: dict[str, int]) -> None:
    """Take what is settled out of a run, and out of `versions`."""
    rows = connection.execute(
        "SELECT number, id, version FROM fragments WHERE number >= ? AND number < ?", (run.first, run.behind)
    )
    confirmed = versions.pop
    _take_from(
        connection,
        run,
        [number for number, fragment_id, version in rows if confirmed(fragment_id, NEW) >= version],
    )


def _numbers(connection: sqlite3.Connection, versions: dict[str, int]) -> Iterator[int]:
    for chunk in chunks(list(versions)):
        query = f"SELECT number, id, version FROM fragments WHERE id IN ({marks(len(chunk))})"  # noqa: S608 - marks only
        for number, fragment_id, version in connection.execute(query, chunk):
            if version <= versions[fragment_id]:
                yield number


def _run_of(connection: sqlite3.Connection, number: int) -> _Run | None:
    query = "SELECT first, behind, place FROM outbox_runs WHERE first <= ? ORDER BY first DESC LIMIT 1"
    row = connection.execute(query, (number,)).fetchone()
    return _Run._make(row) if row is not None and number < row[1] else None


def _take_from(connection: sqlite3.Connection, run: _Run, gone: Sequence[int]) -> None:
    """Leave of a run what is between those that are gone, in their order."""
    if not gone:
        return
    connection.execute("DELETE FROM outbox_runs WHERE first = ?", (run.first,))
    if len(gone) == run.behind - run.first:
        return
    left = [
        (before + 1, after)
        for before, after in pairwise((run.first - 1, *gone, run.behind))
        if before + 1 < after
    ]
    _insert(connection, [_Run(first, behind, run.place) for first, behind in left])


def _insert(connection: sqlite3.Connection, runs: Sequence[_Run]) -> None:
    connection.executemany("INSERT INTO outbox_runs VALUES (?, ?, ?)", runs)
