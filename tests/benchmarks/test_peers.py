"""The peer is written as a competent user would: its upserts alone do not depend on order where times differ."""

from __future__ import annotations

import json
import os
import sqlite3
from itertools import permutations
from pathlib import Path

import pytest

from benchmarks.peers.order import EVENTS, write_in_order
from benchmarks.peers.plain_spark import create, write_documents, write_rows
from benchmarks.workload import SOURCES, events

pytestmark = pytest.mark.long


_ROWS = [
    ("p1", "city", "Ulm", 3),
    ("p1", "city", "Bonn", 1),
    ("p2", "city", "Kiel", 2),
    ("p1", "age", "7", 2),
]


def test_rows_keep_the_latest_by_event_time(tmp_path: Path) -> None:
    for number, rows in enumerate(permutations(_ROWS)):
        database = str(tmp_path / f"{number}.db")
        create(database, "rows")
        for row in rows:
            write_rows(database, [row])
        kept = set(sqlite3.connect(database).execute("SELECT person, attribute, value FROM profile"))
        assert kept == {("p1", "city", "Ulm"), ("p2", "city", "Kiel"), ("p1", "age", "7")}


def test_documents_keep_the_latest_by_event_time(tmp_path: Path) -> None:
    for number, rows in enumerate(permutations(_ROWS)):
        database = str(tmp_path / f"{number}.db")
        create(database, "documents")
        for person, attribute, value, at in rows:
            write_documents(database, [(person, json.dumps({attribute: [str(at), value]}))])
        found = dict(sqlite3.connect(database).execute("SELECT person, document FROM profile"))
        assert json.loads(found["p1"]) == {"city": ["3", "Ulm"], "age": ["2", "7"]}
        assert json.loads(found["p2"]) == {"city": ["2", "Kiel"]}


def test_both_orders_hold_the_same_events_and_spark_takes_them_in_theirs(tmp_path: Path) -> None:
    there, back = tmp_path / "there", tmp_path / "back"
    counts = {write_in_order(there, False), write_in_order(back, True)}
    assert counts == {sum(min(EVENTS, len(events(source))) for source in SOURCES)}
    for source in SOURCES:
        lines = [
            [
                line
                for file in sorted((inbox / source).iterdir(), key=os.path.getmtime)
                for line in file.read_bytes().splitlines()
            ]
            for inbox in (there, back)
        ]
        assert lines[0] == lines[1][::-1]
