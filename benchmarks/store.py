"""Writes per second of the embedded profile store, beside a bare SQLite table in the same run.

python -m benchmarks.store
"""

from __future__ import annotations

import random
import sqlite3
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TypeVar

from idgraph.model.store import FragmentWrite
from sinks.sqlite.profiles import SqliteProfileStore

T = TypeVar("T")

FRAGMENTS = 50_000
BATCH = 1_000
STATE_BYTES = 400


def measure() -> dict[str, float]:
    """Fragments per second, each batch durable; `limit_*` are the same bytes into one bare table."""
    ids, states = _input()
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        store = SqliteProfileStore(Path(folder) / "profiles.db")
        for label, version in (("new", 0), ("update", 1)):
            batches = [
                [
                    FragmentWrite(each, version, states[each], frozenset({each, f"email:~{each[9:]}"}))
                    for each in batch
                ]
                for batch in _batches(ids)
            ]
            rates[label] = _rate(store.write, batches)
        rates["read"] = _rate(store.read, list(_batches(ids)))
        rates["settle"] = _rate(lambda _: store.settle(store.outbox(BATCH)), list(_batches(ids)))
        started = time.perf_counter()
        for each in ids[:2000]:
            store.find(each)
        rates["find"] = 2000 / (time.perf_counter() - started)
        store.close()
        rates |= _limit(Path(folder) / "bare.db", ids, states)
    rates["new_of_limit"] = rates["new"] / rates["limit_new"]
    rates["update_of_limit"] = rates["update"] / rates["limit_update"]
    return rates


def _input() -> tuple[list[str], dict[str, bytes]]:
    chance = random.Random(7)
    ids = [f"realm_id:{number}" for number in chance.sample(range(10**10), FRAGMENTS)]
    return ids, {each: chance.randbytes(STATE_BYTES) for each in ids}


def _limit(path: Path, ids: list[str], states: dict[str, bytes]) -> dict[str, float]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE bare (number INTEGER PRIMARY KEY, id TEXT, state BLOB)")

    def run(statement: str) -> float:
        def write(batch: list[tuple[str, bytes, int]]) -> None:
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany(statement, batch)
            connection.execute("COMMIT")

        rows = [(each, states[each], number) for number, each in enumerate(ids)]
        return _rate(write, list(_batches(rows)))

    rates = {
        "limit_new": run("INSERT INTO bare (id, state, number) VALUES (?, ?, ?)"),
        "limit_update": run("UPDATE bare SET id = ?, state = ? WHERE number = ?"),
    }
    connection.close()
    return rates


def _batches(values: list[T]) -> Iterable[list[T]]:
    return (values[start : start + BATCH] for start in range(0, len(values), BATCH))


def _rate(write: Callable[[list[T]], object], batches: list[list[T]]) -> float:
    started = time.perf_counter()
    for batch in batches:
        write(batch)
    return sum(map(len, batches)) / (time.perf_counter() - started)


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:16} {value:12,.2f}")
