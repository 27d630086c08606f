"""The embedded index beside what was weighed against it: SQLite's FTS5 with a table of typed values.

python -m benchmarks.search_engines

The sketch of FTS5 does what the index must do: exact terms, ranges and order by a typed table, words by FTS5, whole
documents replaced by version, one durable transaction per batch. It leaves out tombstones and versions, which cost it
nothing here.
"""

from __future__ import annotations

import hashlib
import random
import resource
import sqlite3
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.index import value_at
from idgraph.model.index import IndexDocument
from idgraph.model.queries import FullText, Order, Prefix, Query, Range, Term
from sinks.tantivy.index import TantivyProfileIndex

DOCUMENTS = 20_000
BATCH = 1_000
CHANGED = 100
PATHS = [f"payroll.insights.field{number}" for number in range(17)]


class Fts5:
    """Documents in one SQLite file: rows of typed values, and words in FTS5."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        for statement in (
            "PRAGMA journal_mode = WAL",
            "PRAGMA synchronous = FULL",
            "PRAGMA secure_delete = ON",
            "CREATE TABLE documents (number INTEGER PRIMARY KEY, id TEXT UNIQUE, version INTEGER)",
            "CREATE TABLE attributes (number INTEGER PRIMARY KEY, path TEXT UNIQUE)",
            """CREATE TABLE typed (path INTEGER, value, document INTEGER,
               PRIMARY KEY (path, value, document)) WITHOUT ROWID""",
            "CREATE INDEX by_document ON typed (document)",
            "CREATE VIRTUAL TABLE words USING fts5(text, detail = none)",
        ):
            self._connection.execute(statement)
        self._paths: dict[str, int] = {}

    def put(self, documents: Sequence[IndexDocument]) -> None:
        run = self._connection.execute
        run("BEGIN IMMEDIATE")
        for document in documents:
            row = run("SELECT number, version FROM documents WHERE id = ?", (document.id,)).fetchone()
            if row is not None:
                if row[1] > document.version:
                    continue
                for table, column in (("documents", "number"), ("typed", "document"), ("words", "rowid")):
                    run(f"DELETE FROM {table} WHERE {column} = ?", (row[0],))
            added = run("INSERT INTO documents (id, version) VALUES (?, ?)", (document.id, document.version))
            values = [(self._path(path), value, added.lastrowid) for path, value in document.fields.items()]
            self._connection.executemany("INSERT OR IGNORE INTO typed VALUES (?, ?, ?)", values)
            text = " ".join(each for _, each, _ in values if isinstance(each, str))
            run("INSERT INTO words (rowid, text) VALUES (?, ?)", (added.lastrowid, text))
        run("COMMIT")

    def _path(self, path: str) -> int:
        if path not in self._paths:
            run = self._connection.execute
            run("INSERT OR IGNORE INTO attributes (path) VALUES (?)", (path,))
            (number,) = run("SELECT number FROM attributes WHERE path = ?", (path,)).fetchone()
            self._paths[path] = number
        return self._paths[path]

    def ids(self, where: str, *values: Any, order: str = "id") -> list[Any]:
        statement = f"SELECT id FROM documents JOIN typed ON document = number WHERE {where} ORDER BY {order} LIMIT 20"
        return self._connection.execute(statement, values).fetchall()

    def asked(self, value: str, number: int) -> dict[str, Callable[[], object]]:
        """The queries to both."""
        run = self._connection.execute
        text, whole = self._path(PATHS[0]), self._path(PATHS[11])
        ranked = "SELECT id FROM words JOIN documents ON number = words.rowid WHERE words MATCH ? ORDER BY rank LIMIT 20"
        return {
            "term": lambda: self.ids("path = ? AND value = ?", text, value),
            "prefix": lambda: self.ids("path = ? AND value >= ? AND value < ?", text, "User 12", "User 13"),
            "range": lambda: self.ids("path = ? AND value BETWEEN ? AND ?", whole, 0, number),
            "words, ranked": lambda: run(ranked, ("thing",)).fetchall(),
            "sorted": lambda: self.ids("path = ?", whole, order="value DESC"),
            "facet": lambda: run(
                "SELECT value, count(*) FROM typed WHERE path = ? GROUP BY value ORDER BY 2 DESC LIMIT 10",
                (self._path(PATHS[5]),),
            ).fetchall(),
        }


def _asked(index: TantivyProfileIndex, value: str, number: int) -> dict[str, Callable[[], object]]:
    return {
        "term": lambda: index.search(Query((Term(PATHS[0], value),))),
        "prefix": lambda: index.search(Query((Prefix(PATHS[0], "User 12"),))),
        "range": lambda: index.search(Query((Range(PATHS[11], 0, number),))),
        "words, ranked": lambda: index.search(Query((FullText("thing"),))),
        "sorted": lambda: index.search(Query(), order=Order(PATHS[11], is_descending=True)),
        "facet": lambda: index.facets(Query(), PATHS[5]),
    }


def measure(documents: int = DOCUMENTS) -> dict[str, dict[str, float]]:
    """Figures of each: documents per second, CPU per document, milliseconds of a commit that replaces 100 documents
    and of each query, megabytes."""
    chance = random.Random(7)
    given = [
        IndexDocument(f"realm_id:{each}", 1, {path: value_at(chance, at) for at, path in enumerate(PATHS)})
        for each in chance.sample(range(10**10), documents)
    ]
    value = str(given[17].fields[PATHS[0]])
    found: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("tantivy", "fts5"):
            path = Path(folder) / name
            index = TantivyProfileIndex(path, _name) if name == "tantivy" else Fts5(path)
            cpu, started = _cpu(), time.perf_counter()
            for start in range(0, documents, BATCH):
                index.put(given[start : start + BATCH])
            seconds = time.perf_counter() - started
            figures = {
                "documents/s": documents / seconds,
                "CPU µs/document": 1e6 * (_cpu() - cpu) / documents,
            }
            again = [each._replace(version=2) for each in chance.sample(given, 10 * CHANGED)]
            pages = [again[at : at + CHANGED] for at in range(0, len(again), CHANGED)]
            figures["replace 100, ms"] = _milliseconds([partial(index.put, page) for page in pages])
            asked = (
                _asked(index, value, 5_000)
                if isinstance(index, TantivyProfileIndex)
                else index.asked(value, 5_000)
            )
            figures |= {f"{query}, ms": _milliseconds([work] * 20) for query, work in asked.items()}
            files = [path, *path.rglob("*")] if path.is_dir() else list(path.parent.glob(f"{name}*"))
            figures["MB"] = sum(each.stat().st_size for each in files if each.is_file()) / 1e6
            found[name] = figures
    return found


def _name(document_id: str) -> bytes:
    return hashlib.sha256(document_id.encode()).digest()[:16]


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _milliseconds(works: Sequence[Callable[[], object]]) -> float:
    """The median."""
    times: list[float] = []
    for work in works:
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return 1000 * sorted(times)[len(times) // 2]


if __name__ == "__main__":
    figures = measure()
    for row in figures["tantivy"]:
        print(f"{row:20}" + "".join(f"{name:>9} {found[row]:10,.1f}" for name, found in figures.items()))
