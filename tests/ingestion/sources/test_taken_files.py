"""What Spark's log of files reports a micro-batch."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ingestion.sources.files import taken as taken_files
from ingestion.sources.files.taken import files_of


def checkpoint(folder: Path, ends: dict[int, int], removed: int = 0) -> Path:
    """As Spark leaves one: `ends` is the last entry of each micro-batch; each entry took three files, and entries below
    `removed` have no file of their own any more."""
    offsets, log = folder / "offsets", folder / "sources" / "0"
    offsets.mkdir(parents=True)
    log.mkdir(parents=True)
    for number, end in ends.items():
        (offsets / str(number)).write_text(f'v1\n{{"batchWatermarkMs":0}}\n{{"logOffset":{end}}}')
    lines: list[str] = []
    for entry in range(max(ends.values()) + 1):
        own = [
            json.dumps({"path": f"file://{path}", "timestamp": 1, "batchId": entry}, separators=(",", ":"))
            for path in paths(entry)
        ]
        lines += own
        if entry % 10 == 9:
            (log / f"{entry}.compact").write_text("\n".join(["v1", *lines]))
        elif entry >= removed:
            (log / str(entry)).write_text("\n".join(["v1", *own]))
    return folder


def paths(entry: int) -> list[Path]:
    return [Path(f"/in/{entry}-{number}.jsonl") for number in range(3)]


@pytest.mark.parametrize("tail", [1, 150, 1 << 20])
@pytest.mark.parametrize("removed", [0, 9, 19])
def test_all_files_of_a_micro_batch_are_reported(
    tail: int, removed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by review: of a micro-batch of two entries, the first of which Spark had removed, none were."""
    monkeypatch.setattr(taken_files, "TAIL_BYTES", tail)
    folder = checkpoint(tmp_path, {0: 0, 1: 7, 2: 9, 3: 10, 4: 18, 5: 19}, removed)
    assert files_of(folder, 2) == [*paths(8), *paths(9)]
    assert files_of(folder, 5) == paths(19)
    assert files_of(folder, 4) == [path for entry in range(11, 19) for path in paths(entry)]
    assert files_of(folder, 6) == []
