"""The size of the next micro-batch, by the flow's checkpoint of the last one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from idgraph.model.flows import HeldSources
from idgraph.model.kafka import KafkaSettings
from ingestion.sources.kafka.stream import FIRST_OFFSETS, KafkaStream
from sinks.document_folder import DocumentFolder

MOST = 100_000


@pytest.fixture
def stream(tmp_path: Path) -> KafkaStream:
    settings = KafkaSettings(
        bootstrap_servers="nowhere:1",
        min_offsets_per_batch=1_000,
        max_offsets_per_batch=MOST,
        batch_seconds=5.0,
    )
    return KafkaStream({}, settings, tmp_path, HeldSources(DocumentFolder(tmp_path), ""))


def plan(checkpoint: Path, number: int, **offsets: int) -> None:
    """As Spark writes it: its version, what it knows of the query, the offsets by topic and partition."""
    folder = checkpoint / "offsets"
    folder.mkdir(exist_ok=True)
    reported = json.dumps({topic: {"0": offset} for topic, offset in offsets.items()})
    (folder / str(number)).write_text(f"v1\n{{}}\n{reported}")


def test_offsets_that_hold_no_record_count_against_the_bound(stream: KafkaStream, tmp_path: Path) -> None:
    plan(tmp_path, 0, transactions=0)
    stream.took(1, FIRST_OFFSETS // 2, 60.0)
    least = stream._bound.present
    assert least < FIRST_OFFSETS // 4
    taken = 0
    for number in range(1, 30):
        # Each record in a transaction of its own, whose end takes an offset too: the micro-batch is full.
        offsets = stream._bound.present
        taken += offsets
        plan(tmp_path, number, transactions=taken)
        stream.took(number, offsets // 2, 0.1)
    assert stream._bound.present == MOST


def test_the_offsets_before_a_partition_that_came_meanwhile_were_not_taken(
    stream: KafkaStream, tmp_path: Path
) -> None:
    plan(tmp_path, 0, old=100)
    plan(tmp_path, 1, old=110, new=10**9)
    stream.took(1, 500, 0.01)
    assert stream._bound.present == FIRST_OFFSETS


def test_nothing_waits_before_it_is_loaded(stream: KafkaStream, tmp_path: Path) -> None:
    plan(tmp_path, 0, old=100)
    assert stream.waiting() == {}
