"""Documents and answers per second of the embedded profile index, beside a bare SQLite table.

python -m benchmarks.index
"""

from __future__ import annotations

import hashlib
import random
import sqlite3
import tempfile
import time
from pathlib import Path

from idgraph.model import canonical
from idgraph.model.index import IndexDocument
from idgraph.model.queries import FullText, Prefix, Query, Range, Scalar, Term
from sinks.tantivy.index import TantivyProfileIndex

DOCUMENTS = 20_000
BATCH = 1_000
PATHS = [f"payroll.insights.field{number}" for number in range(20)]
CHANGED = (0, 5, 11, 17)


def measure() -> dict[str, float]:
    """Documents per second, each batch durable, and milliseconds a query. `limit` is the same documents as
    JSON into one bare table."""
    chance = random.Random(7)
    documents = [
        IndexDocument(
            f"realm_id:{number}", 1, {path: value_at(chance, place) for place, path in enumerate(PATHS)}
        )
        for number in chance.sample(range(10**10), DOCUMENTS)
    ]
    updates = [
        IndexDocument(
            each.id, 2, {**each.fields, **{PATHS[place]: value_at(chance, place) for place in CHANGED}}
        )
        for each in chance.sample(documents, len(documents))
    ]
    with tempfile.TemporaryDirectory() as folder:
        index = TantivyProfileIndex(Path(folder) / "index", _name)
        rates = {"new": _put(index, documents), "update": _put(index, updates), "same": _put(index, updates)}
        fields = updates[0].fields
        for name, query in {
            "term_ms": Query((Term(PATHS[0], _scalar(fields[PATHS[0]])),)),
            "prefix_ms": Query((Prefix(PATHS[0], "User 123"),)),
            "range_ms": Query((Range(PATHS[11], 0, 500),)),
            "full_text_ms": Query((FullText(str(fields[PATHS[0]])),)),
            "full_text_of_path_ms": Query((FullText("value 77", PATHS[5]),)),
            "full_text_of_all_ms": Query((FullText("thing"),)),
        }.items():
            rates[name] = _milliseconds(index, query)
        index.close()
        rates["limit"] = _limit(Path(folder) / "bare.db", documents)
    rates["new_of_limit"] = rates["new"] / rates["limit"]
    return rates


def _name(document_id: str) -> bytes:
    return hashlib.sha256(document_id.encode()).digest()[:16]


def value_at(chance: random.Random, place: int) -> Scalar:
    """A value of the attribute that stands at a place of PATHS."""
    if place < 4:
        return f"User {chance.randrange(10**7)} thing"
    if place < 10:
        return f"Value {chance.randrange(200)}"
    if place < 17:
        return chance.randrange(10**6)
    return chance.random() * 1000 if place < 19 else chance.random() < 0.5


def _scalar(value: Scalar | list[Scalar]) -> Scalar:
    return value[0] if isinstance(value, list) else value


def _put(index: TantivyProfileIndex, documents: list[IndexDocument]) -> float:
    started = time.perf_counter()
    for start in range(0, len(documents), BATCH):
        index.put(documents[start : start + BATCH])
    return len(documents) / (time.perf_counter() - started)


def _milliseconds(index: TantivyProfileIndex, query: Query, rounds: int = 50) -> float:
    started = time.perf_counter()
    for _ in range(rounds):
        index.search(query)
    return 1000 * (time.perf_counter() - started) / rounds


def _limit(path: Path, documents: list[IndexDocument]) -> float:
    rows = [(each.id, canonical.encode(dict(each.fields))) for each in documents]
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("CREATE TABLE bare (id TEXT, fields BLOB)")
    started = time.perf_counter()
    for start in range(0, len(rows), BATCH):
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany("INSERT INTO bare VALUES (?, ?)", rows[start : start + BATCH])
        connection.execute("COMMIT")
    rate = len(rows) / (time.perf_counter() - started)
    connection.close()
    return rate


if __name__ == "__main__":
    for name, value in measure().items():
        print(f"{name:22} {value:12,.3f}")
