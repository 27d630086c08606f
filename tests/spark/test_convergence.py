"""Law 1 on the shop's first days: whatever the order, duplication, batches, parallelism and crashes, the same
export, byte for byte, protected values masked and then revealed."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from tests.installation import Installation, Shop, kill_tree, retail, until
from tests.lanes import is_thorough
from tests.undisturbed import take

pytestmark = pytest.mark.spark

PART = 1 if is_thorough() else 3
FIRST = {"segment": 6000 // PART, "amplitude": 4000 // PART, "orders": 600 // PART}
"""Late ones, duplicates and customers of all three sources are among them."""


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory, shop: Shop) -> bytes:
    """Their profiles, taken in the order of their arrival."""
    installation = Installation(tmp_path_factory.mktemp("reference"), shop)
    report = take(installation, {source: retail(source)[:events] for source, events in FIRST.items()})
    assert report.events == sum(FIRST.values())
    assert report.dead_letter_count() == 0
    return installation.profiles()


def publish(
    installation: Installation,
    seed: int,
    copies: int = 1,
    lines_per_file: int = 800 // PART,
    ending: str = "jsonl",
) -> None:
    """The first days, shuffled, each event `copies` times, in files of their own size."""
    chance = random.Random(seed)
    for source, events in FIRST.items():
        lines = retail(source)[:events] * copies
        chance.shuffle(lines)
        for number, start in enumerate(range(0, len(lines), lines_per_file)):
            installation.publish(source, lines[start : start + lines_per_file], f"{number:06d}.{ending}")


@pytest.mark.long
def test_shuffled_on_one_worker_in_many_small_chunks(tmp_path: Path, shop: Shop, reference: bytes) -> None:
    installation = Installation(
        tmp_path, shop, master="local[1]", partitions=1, combine_events=701, commit_fragments=17
    )
    publish(installation, seed=1)
    installation.run()
    assert installation.profiles() == reference


@pytest.mark.long
def test_every_event_twice_on_two_workers_in_small_batches(
    tmp_path: Path, shop: Shop, reference: bytes
) -> None:
    installation = Installation(
        tmp_path,
        shop,
        partitions=3,
        split_bytes=200_000 // PART,
        max_files_per_batch=7,
        combine_events=1000 // PART // PART,
    )
    publish(installation, seed=2, copies=2, ending="jsonl.gz")
    batches = installation.run()
    assert len(batches) > 2
    assert max(batch["tasks"] for batch in batches) > 1
    assert installation.profiles() == reference


def test_killed_again_and_again(tmp_path: Path, shop: Shop, reference: bytes) -> None:
    installation = Installation(
        tmp_path, shop, max_files_per_batch=3, split_bytes=150_000 // PART, commit_fragments=50
    )
    publish(installation, seed=3, lines_per_file=600 // PART)
    chance = random.Random(4)
    for _ in range(2 if is_thorough() else 1):
        kill_in_mid_batch(installation, chance.uniform(0, 0.2))
    installation.run()
    assert installation.profiles() == reference


def kill_in_mid_batch(installation: Installation, later: float) -> None:
    """A run that has finished a micro-batch or so and writes the next, killed so many seconds later."""
    store = installation.folder / ".idgraph" / "profiles.db-wal"
    done = len(installation.batches())
    process = installation.start("--until-done")
    until(lambda: len(installation.batches()) > done or process.poll() is not None, what="a micro-batch")
    written = store.stat().st_mtime_ns
    until(lambda: process.poll() is not None or store.stat().st_mtime_ns != written, what="a write")
    time.sleep(later)
    assert process.poll() is None, "the run ended before it could be killed"
    kill_tree(process)


@pytest.mark.long
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
