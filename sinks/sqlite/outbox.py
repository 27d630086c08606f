"""The outbox of the profile store's file: what is not projected yet, by the ids of the fragments.

One table, keyed by fragment, since entries do not live long: it stays small, and an entry costs a lookup in a tree that is
in memory. Each function runs within one transaction of the caller's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import islice

from idgraph.model.store import OutboxEntry, OutboxShare

TABLE = "CREATE TABLE outbox (fragment TEXT PRIMARY KEY, version INTEGER NOT NULL) WITHOUT ROWID"


def add(connection: sqlite3.Connection, written: Iterable[tuple[str, int]]) -> None:
    """Add entries: ids and versions of fragments."""
    connection.executemany(
        "INSERT INTO outbox VALUES (?, ?) ON CONFLICT (fragment) DO UPDATE SET version = excluded.version",
        written,
    )


def entries(connection: sqlite3.Connection, limit: int, after: str, share: OutboxShare) -> list[OutboxEntry]:
    """Entries in the order of the ids."""
    query = "SELECT fragment, version FROM outbox WHERE fragment > ? ORDER BY fragment"
    rows = map(OutboxEntry._make, connection.execute(query, (after,)))
    return list(islice((each for each in rows if share.has(each.fragment_id)), limit))


def waits(connection: sqlite3.Connection, fragment_id: str) -> bool:
    """Whether a fragment has an entry."""
    query = "SELECT 1 FROM outbox WHERE fragment = ?"
    return connection.execute(query, (fragment_id,)).fetchone() is not None


def settle(connection: sqlite3.Connection, settled: Sequence[OutboxEntry]) -> None:
    """Remove entries, but those of later versions."""
    connection.executemany("DELETE FROM outbox WHERE fragment = ? AND version <= ?", settled)
