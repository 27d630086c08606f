"""A slow index delays a flow once and not again; nothing that it did not confirm leaves the outbox."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from idgraph.files import file_lock
from idgraph.model.errors import ProfileIndexError
from idgraph.model.index import IndexDocument
from idgraph.model.queries import Query
from idgraph.projection.outbox import drain_outbox
from idgraph.projection.patient_index import PatientIndex
from ingestion.spark.worker_process import resources
from ingestion.stages.commit import CommitStage
from sinks.memory.index import MemoryProfileIndex
from sinks.memory.profiles import MemoryProfileStore
from sinks.tantivy.index import TantivyProfileIndex
from tests.contracts.implementations import hashed_name
from tests.ingestion.patience import eventually
from tests.ingestion.test_commit_stage import EVERYTHING, one
from tests.retail import Pipeline

SECONDS = 0.05


class _Slow(MemoryProfileIndex):
    """Takes a put when it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.let = threading.Event()
        self.asked = 0

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        self.asked += 1
        self.let.wait(30)
        return super().put(documents)


def document(number: int) -> IndexDocument:
    return IndexDocument(f"user_id:{number}", 1, {"age": 30})


def test_an_index_that_answers_in_time_is_like_itself() -> None:
    index = PatientIndex(MemoryProfileIndex())
    for number in range(100):
        assert index.put([document(number)]) == {}
    assert index.count(Query()) == 100
    assert index.put([IndexDocument("user_id:x", 1, {"age": object()})]).keys() == {"user_id:x"}  # type: ignore[dict-item]


def test_one_put_is_waited_for_and_the_next_are_refused_at_once() -> None:
    slow = _Slow()
    index = PatientIndex(slow, SECONDS)
    with pytest.raises(ProfileIndexError, match="takes long"):
        index.put([document(1)])
    started = time.monotonic()
    for number in range(100):
        with pytest.raises(ProfileIndexError, match="still at"):
            index.put([document(number)])
    assert time.monotonic() - started < 2
    assert slow.asked == 1
    slow.let.set()
    eventually(lambda: index.count(Query()) == 1)
    eventually(lambda: _is_taken(index, document(2)))
    assert index.count(Query()) == 2


def _is_taken(index: PatientIndex, some: IndexDocument) -> bool:
    try:
        return index.put([some]) == {}
    except ProfileIndexError:
        return False


def test_what_the_index_raised_is_raised() -> None:
    class Broken(MemoryProfileIndex):
        def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
            raise ProfileIndexError("the disk is full")

    index = PatientIndex(Broken())
    for _ in range(3):
        with pytest.raises(ProfileIndexError, match="the disk is full"):
            index.put([document(1)])


def test_what_a_slow_index_was_not_given_waits_in_the_outbox() -> None:
    store, slow = MemoryProfileStore(), _Slow()
    index = PatientIndex(slow, SECONDS)
    stage = CommitStage(store, index, EVERYTHING)
    for number in range(5):
        output = stage.run([one(number)])
        assert (output.written, output.unindexed) == (1, 1)
    assert len(store.outbox()) == 5
    slow.let.set()
    # What the background took was never settled: retried, it has no effect.
    eventually(lambda: slow.count(Query()) == 1)
    assert drain_outbox(store, slow, EVERYTHING) == 0
    assert store.outbox() == []
    assert slow.count(Query()) == 5


def test_another_writer_of_the_index_holds_no_flow_up(tmp_path: Path) -> None:
    embedded = TantivyProfileIndex(tmp_path / "index", hashed_name)
    index = PatientIndex(embedded, 0.5)
    embedded.put([document(0)])
    with file_lock(tmp_path / "index" / "lock"):
        started = time.monotonic()
        for number in range(1, 4):
            with pytest.raises(ProfileIndexError):
                index.put([document(number)])
        assert time.monotonic() - started < 10
    eventually(lambda: _is_taken(index, document(3)))
    assert index.versions(["user_id:1", "user_id:2", "user_id:3"]).keys() == {"user_id:1", "user_id:3"}
    index.close()


def test_workers_are_patient(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    plan = replace(pipeline.plan(), settings=str(tmp_path))
    assert isinstance(resources(plan).index, PatientIndex)
