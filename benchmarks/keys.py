"""Keys: how fast a rotation is beside its limit, how often a data key is cached, what a sealed event costs.

python -m benchmarks keys
"""

from __future__ import annotations

import secrets
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from benchmarks.sealing_cost import cost_of_sealing
from benchmarks.workload import clear
from idgraph.jobs.rotate import PAGE, Rotation
from idgraph.model.jobs import Progress
from sinks.keyring.provider import KeyringFile
from sinks.sqlite.data_keys import SqliteDataKeys
from transforms.privacy.sealing import DataKeys

DATA_KEYS = 100_000


def measure(folder: Path) -> dict[str, Any]:
    """Data keys a second of a rotation and of bare AES-SIV with bare SQLite in the same pages; microseconds of CPU
    an event of three sealed attributes; share of fragments whose data key was cached."""
    clear(folder)
    folder.mkdir(parents=True)
    names = [f"user_id:{number:07d}" for number in range(DATA_KEYS)]
    rotation, limit = _rotation(folder, names), _limit(folder / "bare.db", names)
    return {
        "data_keys": DATA_KEYS,
        "rotated_a_second": round(rotation),
        "limit_a_second": round(limit),
        "of_limit": round(rotation / limit, 2),
        **cost_of_sealing(folder / "retail"),
    }


def _rotation(folder: Path, names: Sequence[str]) -> float:
    provider = KeyringFile.create(folder / "keyring.json")
    with closing(SqliteDataKeys(folder / "data-keys.db")) as store:
        keys = DataKeys(provider, store, cache_size=0)
        for start in range(0, len(names), PAGE):
            keys.fetch(names[start : start + PAGE], create=True)
        started = time.perf_counter()
        job, last = Rotation(provider, store), Progress()
        job.plan({})
        for _ in job.pages(last, {}):
            pass
        spent = time.perf_counter() - started
        if last.counts["rewrapped"] != len(names):
            raise RuntimeError(f"only {last.done} data keys were rewrapped")
    return len(names) / spent


def _limit(path: Path, names: Sequence[str]) -> float:
    """Unwrapping and wrapping with nothing around it, and an update by primary key of as many bytes a page."""
    old, new = AESSIV(secrets.token_bytes(64)), AESSIV(secrets.token_bytes(64))
    rows = {name: old.encrypt(secrets.token_bytes(64), [name.encode()]) for name in names}
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        for statement in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
            connection.execute(f"PRAGMA {statement}")
        connection.execute("CREATE TABLE bare (name TEXT PRIMARY KEY, wrapped BLOB) WITHOUT ROWID")
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO bare VALUES (?, ?)", rows.items())
        connection.execute("COMMIT")
        started = time.perf_counter()
        for start in range(0, len(names), PAGE):
            page = names[start : start + PAGE]
            changed = [
                (new.encrypt(old.decrypt(rows[name], [name.encode()]), [name.encode()]), name)
                for name in page
            ]
            connection.execute("BEGIN IMMEDIATE")
            connection.executemany("UPDATE bare SET wrapped = ? WHERE name = ?", changed)
            connection.execute("COMMIT")
        return len(names) / (time.perf_counter() - started)
