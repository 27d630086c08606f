"""What a worker process keeps from task to task, and what does not run within one."""

from __future__ import annotations

import gc
import pickle
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.core.broadcast import Broadcast

from ingestion.spark.worker_process import only_our_errors


@pytest.fixture(autouse=True)
def collector(monkeypatch: pytest.MonkeyPatch) -> None:
    """The real one."""
    monkeypatch.setattr("ingestion.spark.worker_process.gc", gc)


def test_the_collector_does_not_run_within_a_task_that_reads_a_broadcast_value(tmp_path: Path) -> None:
    """Found by measuring: PySpark enables the collector behind a value that it has read, and so a task that began with
    a new snapshot took up to half of its time again."""
    sent = tmp_path / "value"
    sent.write_bytes(pickle.dumps("snapshot"))
    runs: list[str] = []

    def note(phase: str, _reported: dict[str, int]) -> None:
        runs.append(phase)

    @only_our_errors
    def task() -> Iterator[int]:
        assert Broadcast(path=str(sent)).value == "snapshot"
        yield sum(len(each) for each in [[number] for number in range(50_000)])
        yield len(runs)

    thresholds = gc.get_threshold()
    gc.callbacks.append(note)
    try:
        assert list(task()) == [50_000, 0]
        assert runs == ["start", "stop"]
    finally:
        gc.callbacks.remove(note)
    assert gc.isenabled()
    assert gc.get_threshold() == thresholds


def test_a_task_that_ends_after_the_next_has_begun_leaves_the_collector_as_it_was() -> None:
    @only_our_errors
    def task() -> Iterator[int]:
        yield 1
        yield 2

    thresholds = gc.get_threshold()
    first, second = task(), task()
    assert (next(first), next(second)) == (1, 1)
    assert list(first) == [2]
    assert list(second) == [2]
    assert gc.get_threshold() == thresholds
