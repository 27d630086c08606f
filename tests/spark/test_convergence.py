"""Law 1 on the shop's month: whatever the order, duplication, batches, parallelism and crashes, the same
export, byte for byte, protected values masked and then revealed."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.installation import Installation, Shop, kill_tree, retail

pytestmark = pytest.mark.spark

SOURCES = ("segment", "amplitude", "orders")


def publish(
    installation: Installation, seed: int, copies: int = 1, lines_per_file: int = 5000, ending: str = "jsonl"
) -> None:
    """The month, shuffled, each event `copies` times, in files of their own size."""
    chance = random.Random(seed)
    for source in SOURCES:
        lines = retail(source) * copies
        chance.shuffle(lines)
        for number, start in enumerate(range(0, len(lines), lines_per_file)):
            installation.publish(source, lines[start : start + lines_per_file], f"{number:06d}.{ending}")


def test_shuffled_on_one_worker_in_many_small_chunks(tmp_path: Path, shop: Shop, reference: bytes) -> None:
    installation = Installation(
        tmp_path, shop, master="local[1]", partitions=1, combine_events=701, commit_fragments=97
    )
    publish(installation, seed=1)
    installation.run()
    assert installation.profiles() == reference


def test_every_event_twice_on_two_workers_in_small_batches(
    tmp_path: Path, shop: Shop, reference: bytes
) -> None:
    installation = Installation(
        tmp_path, shop, partitions=3, split_bytes=400_000, max_files_per_batch=7, combine_events=3000
    )
    publish(installation, seed=2, copies=2, ending="jsonl.gz")
    batches = installation.run()
    assert len(batches) > 2
    assert max(batch["tasks"] for batch in batches) > 1
    assert installation.profiles() == reference


def test_killed_again_and_again(tmp_path: Path, shop: Shop, reference: bytes) -> None:
    installation = Installation(
        tmp_path, shop, max_files_per_batch=4, split_bytes=300_000, commit_fragments=200
    )
    publish(installation, seed=3, lines_per_file=2500)
    chance = random.Random(4)
    store = installation.folder / ".idgraph" / "profiles.db-wal"
    for _ in range(3):
        size = store.stat().st_size if store.exists() else 0
        done = len(installation.batches())
        process = installation.start("--until-done")
        # In mid-batch: this run has finished a batch or so, and writes the next.
        while not (len(installation.batches()) > done and store.stat().st_size != size):
            assert process.poll() is None, "the run ended before it could be killed"
            time.sleep(0.02)
        time.sleep(chance.uniform(0, 0.5))
        assert process.poll() is None, "the run ended before it could be killed"
        kill_tree(process)
    installation.run()
    assert installation.profiles() == reference


def test_the_checkpoint_lost_and_the_same_files_again(tmp_path: Path, shop: Shop, reference: bytes) -> None:
    installation = Installation(tmp_path, shop)
    publish(installation, seed=5)
    installation.run()
    for part in sorted(
        (installation.folder / ".idgraph" / "flows" / "shop" / "checkpoint").rglob("*"), reverse=True
    ):
        part.rmdir() if part.is_dir() else part.unlink()
    batches = installation.run()
    assert sum(batch["events"] for batch in batches) > 0
    assert sum(batch["written"] for batch in batches) == 0
    assert installation.profiles() == reference
