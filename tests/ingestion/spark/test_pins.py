"""The snapshot with which a micro-batch is begun, and begun again."""

from __future__ import annotations

from pathlib import Path

import pytest

from idgraph.model.snapshots import PinnedSnapshot
from ingestion.spark.sent_snapshots import BatchPins
from tests.retail import snapshot

OLD, NEW = PinnedSnapshot('"1"', snapshot(1)), PinnedSnapshot('"2"', snapshot(2))
BATCH = "shop/query-1/4"


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A flow's folder in which a batch was begun with the old snapshot, and interrupted."""
    assert BatchPins(tmp_path).pin(BATCH, OLD) == OLD
    return tmp_path


def test_a_batch_that_was_cut_short_keeps_its_snapshot(begun: Path) -> None:
    for _ in range(2):
        assert BatchPins(begun).pin(BATCH, NEW) == OLD


def test_another_batch_has_the_newest(begun: Path) -> None:
    pins = BatchPins(begun)
    assert pins.pin("shop/query-1/5", NEW) == NEW
    assert pins.pin("shop/query-2/4", NEW) == NEW
    assert BatchPins(begun).pin("shop/query-2/4", OLD) == NEW


def test_a_batch_that_was_refused_has_the_newest(begun: Path) -> None:
    pins = BatchPins(begun)
    pins.unpin()
    assert pins.pin(BATCH, NEW) == NEW


@pytest.mark.parametrize("left", [b"", b"\0" * 40, b'{"batch": "shop/que'])
def test_what_a_power_cut_left_of_a_note_is_none(begun: Path, left: bytes) -> None:
    (begun / "batch.json").write_bytes(left)
    assert BatchPins(begun).unfinished() is None
    assert BatchPins(begun).pin(BATCH, NEW) == NEW
    assert BatchPins(begun).pin(BATCH, OLD) == NEW
