"""Rows that cross the shuffle."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from idgraph.model.errors import StoreError
from idgraph.model.tombstones import NO_EPOCH
from ingestion.spark.shuffle_blocks import ShuffleBlock, decode_reports, read_blocks, report_row, sealed_rows
from ingestion.stages.outcomes import StageReport
from sinks.keyring.provider import KeyringFile
from transforms.privacy.record_sealing import ShuffleBlockKeys, ShuffleBlockSealer

NAME = "user_id:canary-71"
PARCELS = [
    (0, ShuffleBlock([(NAME, b"its state", NO_EPOCH)], StageReport(events=3))),
    (5, ShuffleBlock([("b", b"", 7), ("c", b"\xff", NO_EPOCH)])),
]


@pytest.fixture
def sealer(tmp_path: Path) -> ShuffleBlockSealer:
    return ShuffleBlockKeys(KeyringFile.create(tmp_path / "keyring.json")).sealer("run")


def test_blocks_arrive_unchanged_and_show_nothing(sealer: ShuffleBlockSealer) -> None:
    batch = sealed_rows(PARCELS, sealer)
    assert list(read_blocks([batch, batch], sealer)) == [block for _, block in PARCELS] * 2
    assert batch.column("part").to_pylist() == [0, 5]
    for body in batch.column("body").to_pylist():
        assert NAME.encode() not in body
        assert b"its state" not in body


def test_a_damaged_block_fails_the_batch_for_a_retry(sealer: ShuffleBlockSealer) -> None:
    batch = sealed_rows(PARCELS, sealer)
    bodies = [bytearray(body) for body in batch.column("body").to_pylist()]
    bodies[1][40] ^= 1
    damaged = pa.record_batch(
        [batch.column("part"), pa.array([bytes(body) for body in bodies], pa.binary())], schema=batch.schema
    )
    blocks = read_blocks([damaged], sealer)
    assert next(blocks) == PARCELS[0][1]
    with pytest.raises(StoreError, match="damaged on their way"):
        next(blocks)


def test_reports_are_added_up_by_who_has_no_key() -> None:
    bodies = [report_row(StageReport(events=events)).column("body").to_pylist()[0] for events in (3, 4)]
    assert decode_reports(bodies).events == 7
