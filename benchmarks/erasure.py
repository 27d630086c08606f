"""Seconds to erase one person from a store of many fragments, beside the same rows deleted with bare SQL.

python -m benchmarks.erasure [FRAGMENTS]
"""

from __future__ import annotations

import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from idgraph.jobs.erase.dead_letter_search import DeadLetterSearch
from idgraph.jobs.erase.erasure import Erasure
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.events import RawRecord
from idgraph.model.index import IndexDocument, IndexRules
from idgraph.model.store import FragmentWrite
from ingestion.spark.workers import WorkerResources
from ingestion.stages.dead_letters import BatchAttempt, DeadLetterWriter
from sinks.keyring.provider import KeyringFile
from sinks.sqlite.data_keys import SqliteDataKeys
from sinks.sqlite.dead_letters import SqliteDeadLetters
from sinks.sqlite.profiles import SqliteProfileStore
from sinks.tantivy.index import TantivyProfileIndex
from sinks.tombstone_file import TombstoneFile
from transforms.privacy.blind_index import BlindIndex
from transforms.privacy.protected_names import TombstoneNames
from transforms.privacy.record_sealing import DeadLetterSealer, ShuffleBlockKeys
from transforms.privacy.sealing import DataKeys

FRAGMENTS = 50_000
LETTERS = 1_000
PERSONS = 5
_BATCH = 5_000
_STATE = b"s" * 400


def measure(fragments: int = FRAGMENTS) -> dict[str, Any]:
    """The first erasure compacts the whole index; those behind it, of which the median is given, only what came
    since. Each person has one fragment, one document, one data key and no dead letter."""
    with tempfile.TemporaryDirectory(prefix="idgraph-erasure-") as name:
        folder = Path(name)
        provider = KeyringFile.create(folder / "keyring.json")
        names = TombstoneNames(provider)
        sealer = DeadLetterSealer(provider)
        resources = WorkerResources(
            SqliteProfileStore(folder / "profiles.db", names),
            TantivyProfileIndex(folder / "index", names),
            SqliteDeadLetters(folder / "dead-letters.db"),
            DataKeys(provider, SqliteDataKeys(folder / "data-keys.db")),
            BlindIndex(provider),
            sealer,
            ShuffleBlockKeys(provider),
        )
        _fill(resources, fragments, sealer)
        dead_letters = DeadLetterSearch({}, None, resources.blind_index, sealer.open)
        tombstones, rules = TombstoneFile(folder / "tombstones.jsonl"), IndexRules(lambda _: True)
        erasure = Erasure(resources, tombstones, names, lambda: dead_letters, lambda: rules)
        persons = [f"user_id:{number}" for number in range(7, fragments, fragments // PERSONS)]
        whole = [_seconds(partial(erasure.erase, [each], 1)) for each in persons]
        at_once = _seconds(lambda: erasure.erase([f"user_id:{number}" for number in range(1000, 2000)], 1))
        bare = [_seconds(partial(_bare, folder, f"user_id:{number}")) for number in range(5)]
        return {
            "fragments": fragments,
            "dead_letters_opened": LETTERS,
            "one_person_first_seconds": round(whole[0], 3),
            "one_person_then_seconds": round(sorted(whole[1:])[len(whole[1:]) // 2], 3),
            "thousand_persons_at_once_seconds": round(at_once, 3),
            "bare_sql_deletes_one_person_seconds": round(sorted(bare)[len(bare) // 2], 4),
        }


def _fill(resources: WorkerResources, fragments: int, sealer: DeadLetterSealer) -> None:
    for start in range(0, fragments, _BATCH):
        numbers = range(start, min(start + _BATCH, fragments))
        ids = [f"user_id:{number}" for number in numbers]
        carried = [frozenset({each, f"email:~{each}"}) for each in ids]
        resources.store.write(
            [FragmentWrite(each, 0, _STATE, names) for each, names in zip(ids, carried, strict=True)]
        )
        resources.index.put(
            [
                IndexDocument(
                    f"user_id:{n}", 1, {"city": f"city{n % 500}", "age": n % 90, "name": f"w{n} w{n % 7}"}
                )
                for n in numbers
            ]
        )
        resources.data_keys.fetch(ids, create=True)
    writer = DeadLetterWriter(sealer)
    records = [
        RawRecord("web", f"file:web/x#{n}", b'{"user": "u%d", "page": "/a/b"}' % n) for n in range(LETTERS)
    ]
    reason, batch = DeadLetterReason.NO_SPEC, BatchAttempt("main/0", "a")
    resources.dead_letters.put(
        [writer.dead_letter(each, "map", reason, "", None, 1, batch) for each in records]
    )


def _bare(folder: Path, fragment_id: str) -> None:
    """The rows of one person and nothing else: no tombstone, no dead letters, no emptied log, the index left as it is."""
    by_file = {
        "profiles.db": (
            "DELETE FROM identifiers WHERE fragment = (SELECT number FROM fragments WHERE id = ?)",
            "DELETE FROM outbox WHERE fragment = (SELECT number FROM fragments WHERE id = ?)",
            "DELETE FROM fragments WHERE id = ?",
        ),
        "data-keys.db": ("DELETE FROM data_keys WHERE fragment = ?",),
    }
    for name, statements in by_file.items():
        connection = sqlite3.connect(folder / name)
        for statement in statements:
            connection.execute(statement, (fragment_id,))
        connection.commit()
        connection.close()


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    for figure, value in measure(*map(int, sys.argv[1:2])).items():
        print(f"{figure:40} {value:>12,}")
