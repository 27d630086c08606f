"""The effect of the order of arrival: the same events once as they came and once from the last to the first."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.flow_run import run_until_done
from benchmarks.peers.process import watched
from benchmarks.product import command, installed
from benchmarks.workload import SOURCES, events, renamed

EVENTS = 5000
"""The first of each source."""

LINES = 1000
FILES = 2
"""Files of each source in a micro-batch, so that later ones meet what earlier ones wrote."""

Values = set[tuple[Any, ...]]


def differences(folder: Path, way: tuple[str, str], feast_python: Path | None) -> dict[str, Any]:
    """By peer: how many profiles or values there are, and of how many what is stored differs."""
    inboxes = [folder / "inbox", folder / "reversed"]
    counts = [write_in_order(inbox, reverse) for inbox, reverse in zip(inboxes, (False, True), strict=True)]
    found = {
        "idgraph": _differing(_idgraph(folder, inboxes, counts[0])),
        "PySpark": _differing([_plain_spark(inbox, folder, way) for inbox in inboxes]),
    }
    if feast_python is not None:
        found["Feast"] = _differing([_feast(inbox, folder, feast_python) for inbox in inboxes])
    return found


def write_in_order(inbox: Path, reverse: bool) -> int:
    """Fill an inbox whose files are taken in the order of their events, or from the last to the first; gives how
    many events."""
    total = 0
    for source in SOURCES:
        (inbox / source).mkdir(parents=True)
        lines = [renamed(source, event, 1) for event in events(source)[:EVENTS]]
        if reverse:
            lines.reverse()
        for number, start in enumerate(range(0, len(lines), LINES)):
            file = inbox / source / f"{number:03d}.jsonl"
            file.write_bytes(b"".join(lines[start : start + LINES]))
            # Spark takes files by their time of change.
            os.utime(file, (1_700_000_000 + number,) * 2)
        total += len(lines)
    return total


def _idgraph(folder: Path, inboxes: Iterable[Path], count: int) -> list[Values]:
    found: list[Values] = []
    keyring = None
    for number, inbox in enumerate(inboxes):
        flow = f"max_files_per_batch = {FILES * len(SOURCES)}\n"
        with installed(folder / f"idgraph{number}", flow, keyring=keyring) as (config, settings):
            (config.parent / "inbox").symlink_to(inbox)
            run_until_done(config, count)
            exported = command(config, "export", "--provenance").stdout.splitlines()
        keyring = settings.keyring_file()
        found.append({(line,) for line in exported})
    return found


def _plain_spark(inbox: Path, folder: Path, way: tuple[str, str]) -> Values:
    target = folder / f"spark-{inbox.name}"
    words = [str(inbox), str(target), "--table", way[0], "--writer", way[1], "--files", str(FILES)]
    watched([sys.executable, "-m", "benchmarks.peers.plain_spark", *words])
    query = "SELECT person, attribute, value FROM profile" if way[0] == "rows" else "SELECT * FROM profile"
    return set(sqlite3.connect(target / "profiles.db").execute(query))


def _feast(inbox: Path, folder: Path, python: Path) -> Values:
    mapped, target = folder / f"mapped-{inbox.name}", folder / f"feast-{inbox.name}"
    watched([sys.executable, "-m", "benchmarks.peers.plain_spark", str(inbox), str(mapped), "--mapped"])
    script = Path(__file__).with_name("feast_push.py")
    watched([str(python), str(script), str(mapped), str(target), "600"])
    connection = sqlite3.connect(target / "online.db")
    tables = connection.execute("SELECT name FROM sqlite_master WHERE name LIKE 'peers_%_view'").fetchall()
    return {
        (table, *row)
        for (table,) in tables
        for row in connection.execute(f"SELECT entity_key, feature_name, value FROM {table}")
    }


def _differing(pair: list[Values]) -> dict[str, int]:
    one, other = pair
    return {"kept": len(one), "differ": len(one - other)}
