"""Micro-batches without Spark: a stand-in puts dead letters and makes reports as tasks do."""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from idgraph.model.dead_letters import DeadLetter, DeadLetterReason
from idgraph.model.errors import FlowInterruptedError, FlowStoppedError, StoreError, WorkerInterruptedError
from idgraph.model.flows import HeldSources, SourceHold
from idgraph.model.snapshots import PinnedSnapshot
from idgraph.model.sources import DeadLetterLimits, FlowConfig, SourceConfig, ValuePlace
from ingestion.sources.stream import Intake
from ingestion.spark import micro_batch
from ingestion.spark.micro_batch import MicroBatches
from ingestion.spark.query import Flow
from ingestion.spark.sent_snapshots import BatchPins
from ingestion.spark.workers import WorkerPlan
from ingestion.stages.dead_letters import BatchAttempt
from ingestion.stages.orphaned_keys import OrphanedKeys
from ingestion.stages.outcomes import BatchReport, StageReport
from sinks.document_folder import DocumentFolder
from sinks.sqlite.dead_letters import SqliteDeadLetters
from tests.ingestion.stages.test_tombstones import at, may
from tests.retail import NOW, Pipeline, snapshot


class AwayAtFirst(SqliteDeadLetters):
    """A store that cannot be written some times."""

    times = 0

    def put(self, dead_letters: Sequence[DeadLetter]) -> None:
        if self.times:
            self.times -= 1
            raise StoreError("the disk is full")
        super().put(dead_letters)


class PowerLostError(Exception):
    """Nothing behind it is done."""


class Stream:
    """One whose records all are read, unless `left_out` says how often something is missing."""

    left_out = 0
    full = False
    sources = frozenset({"web"})

    def active(self) -> frozenset[str]:
        return self.sources

    def can_leave_out(self, source: str) -> bool:
        return True

    def offsets_before(self, number: int, source: str) -> dict[str, dict[int, int]]:
        return {}

    def without_secrets(self, text: str) -> str:
        return text

    def in_tasks(self, rows: Any, number: int) -> Any:
        return rows

    def is_whole(self, number: int, files: int) -> bool:
        self.left_out -= 1
        return self.left_out < 0

    def in_other_tasks(self, number: int) -> Any:
        return "all that was noted"

    def took(self, number: int, offsets: int, seconds: float) -> dict[str, int]:
        return {}

    def is_full(self, number: int) -> bool:
        return self.full

    def close(self) -> None: ...


class Schema:
    """Nobody is informed of schema changes."""

    def follow(self, pinned: PinnedSnapshot) -> None: ...

    def add(self, changes: Sequence[Any]) -> None: ...


class Job:
    """Puts one dead letter each time, as a task does."""

    def __init__(self, dead_letters: AwayAtFirst) -> None:
        self.dead_letters = dead_letters
        self.attempts: list[BatchAttempt] = []
        self.rows: list[Any] = []
        self.refused: list[str] = []
        self.failure: Exception | None = None
        self.dead = 1

    def run(
        self, rows: Any, attempt: BatchAttempt, pinned: PinnedSnapshot, is_last: bool
    ) -> tuple[int, StageReport]:
        self.attempts.append(attempt)
        self.rows.append(rows)
        if self.failure is not None:
            raise self.failure
        dead_letter = DeadLetter(
            id="a" * 32,
            reason=DeadLetterReason.NOT_JSON,
            stage="decode",
            detail="",
            source="web",
            position="web/0/1",
            spec=None,
            snapshot_version=1,
            batch=attempt.batch,
            attempt=attempt.attempt,
            payload=b"sealed",
            set_aside_at=1,
        )
        self.dead_letters.put([dead_letter])
        dead = {"not_json": self.dead}
        return 1, StageReport(
            events=self.dead,
            sources={"web": self.dead},
            dead=dead,
            dead_of={"web": dead},
            refused=self.refused[:],
        )

    def close(self) -> None: ...


class Driver:
    """A flow without its session."""

    def __init__(self, folder: Path, dead_letters: AwayAtFirst, retries: int) -> None:
        limits = DeadLetterLimits(minimum=10)
        plan = WorkerPlan(
            FlowConfig(batch_retries=retries, dead_letters=limits),
            {},
            "",
            cast(Any, None),
        )
        pinned = PinnedSnapshot("etag", snapshot())
        follower = type("Follower", (), {"in_force": lambda _: pinned, "current": lambda _: pinned})()
        self.reported: list[BatchReport] = []
        self.job, self.stream = Job(dead_letters), Stream()
        self.pipeline = pipeline = Pipeline(folder, now=lambda: NOW + 60 * 86_400)
        held = HeldSources(DocumentFolder(folder), "")
        session = SimpleNamespace(sparkContext=SimpleNamespace(_gateway=None))
        batches = MicroBatches(
            plan.flow,
            cast(Any, self.stream),
            cast(Any, self.job),
            BatchPins(folder),
            follower,
            cast(Any, Schema()),
            dead_letters,
            OrphanedKeys(pipeline.store, pipeline.data_keys, dead_letters),
            held,
            {"web": SourceConfig(name="web", type=ValuePlace(const="t"))},
        )
        self.flow = Flow(
            cast(Any, session),
            plan.flow,
            cast(Any, self.stream),
            folder / "checkpoint",
            batches,
            self.reported.append,
            held,
        )
        self.flow._query_id.set_result("query")

    def fail(self, source: str, first: str) -> None:
        """Have a source that is tried again fail again, and the power go as soon as it waits. `first` names the micro-batch
        that it failed in the first time."""
        held = self.flow._held
        held.hold(SourceHold(source=source, why="", at_ms=1, batch=7, batch_name=first, specs=(), offsets={}))
        held.try_again(source)
        held.load({source})
        self.job.dead = 20
        self.stream.sources = frozenset({source, "another"})
        hold = held.hold

        def and_no_more(new: SourceHold) -> None:
            hold(new)
            raise PowerLostError

        held.hold = and_no_more  # type: ignore[method-assign, assignment]

    def take(self) -> None:
        self.flow._process(cast(Any, None), 0)


@pytest.fixture(autouse=True)
def without_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(micro_batch, "BATCH_PAUSE_SECONDS", 0.001)


def test_a_flow_is_ready_and_lags_no_more_when_its_first_micro_batch_is_done(tmp_path: Path) -> None:
    with closing(AwayAtFirst(tmp_path / "letters.db")) as dead_letters:
        driver = Driver(tmp_path, dead_letters, retries=2)
        flow = driver.flow
        assert flow.is_running()
        assert not flow.is_ready()
        assert flow.lag_seconds() == 0
        driver.stream.full = True
        driver.take()
        # More was there, perhaps.
        assert flow.is_ready()
        assert flow.lag_seconds() > 0
        driver.stream.full = False
        driver.take()
        assert flow.lag_seconds() == 0


def test_a_flow_whose_first_micro_batch_fails_is_not_ready(tmp_path: Path) -> None:
    with closing(AwayAtFirst(tmp_path / "letters.db")) as dead_letters:
        driver = Driver(tmp_path, dead_letters, retries=0)
        dead_letters.times = 2
        with pytest.raises(StoreError):
            driver.take()
        assert not driver.flow.is_ready()
        assert driver.flow.lag_seconds() > 0


@pytest.mark.parametrize("times", [0, 1, 2])
def test_a_store_that_is_away_for_a_while_has_the_micro_batch_given_again(tmp_path: Path, times: int) -> None:
    with closing(AwayAtFirst(tmp_path / "letters.db")) as dead_letters:
        dead_letters.times = times
        driver = Driver(tmp_path, dead_letters, retries=2)
        driver.take()
        assert len(driver.job.attempts) == times + 1
        assert [each.attempt for each in dead_letters.scan()] == [driver.job.attempts[-1].attempt]
        (report,) = driver.reported
        assert report.attempts == times + 1
        assert report.counts.dead == {"not_json": 1}


def test_a_store_that_stays_away_stops_the_flow_and_the_micro_batch_is_not_done(tmp_path: Path) -> None:
    with closing(AwayAtFirst(tmp_path / "letters.db")) as dead_letters:
        dead_letters.times = 3
        driver = Driver(tmp_path, dead_letters, retries=2)
        with pytest.raises(StoreError, match="the disk is full"):
            driver.take()
        assert driver.reported == []
        assert list(dead_letters.scan()) == []


@pytest.mark.parametrize(
    ("raised", "reported"),
    [
        (OSError(5, "Input/output error"), "Spark stopped the flow: OSError: [Errno 5] Input/output error"),
        (ConnectionResetError(), "Spark's Java process is gone: "),
    ],
)
def test_a_micro_batch_that_broke_off_is_never_taken_for_one_that_ended(
    raised: Exception, reported: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by CI: a flow that was asked to stop meanwhile said that it had stopped well, with code 0."""
    with closing(AwayAtFirst(tmp_path / "letters.db")) as dead_letters:
        driver = Driver(tmp_path, dead_letters, retries=2)
        driver.job.failure = raised
        with pytest.raises(type(raised)):
            driver.take()
        with pytest.raises(FlowStoppedError, match=re.escape(reported)):
            _stopped(driver, monkeypatch)


def test_workers_that_got_the_signal_too_are_an_interruption(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by use: code 4, and a message without its end."""
    with closing(AwayAtFirst(tmp_path / "letters.db")) as dead_letters:
        driver = Driver(tmp_path, dead_letters, retries=0)
        driver.job.failure = WorkerInterruptedError("interrupted")
        with pytest.raises(WorkerInterruptedError):
            driver.take()
        with pytest.raises(FlowInterruptedError, match="taken up by the next run"):
            _stopped(driver, monkeypatch)


def _stopped(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its flow, run when it was asked to stop already."""
    query = SimpleNamespace(isActive=True, lastProgress=None, stop=lambda: None)
    monkeypatch.setattr(driver.flow, "_start", lambda _: query)
    stop = threading.Event()
    stop.set()
    driver.flow.run(stop, Intake(until_done=False))


def test_what_spark_left_out_is_looked_for_once_more_and_reported_once(tmp_path: Path) -> None:
    with closing(AwayAtFirst(tmp_path / "letters.db")) as dead_letters:
        driver = Driver(tmp_path, dead_letters, retries=0)
        driver.stream.left_out = 1
        driver.take()
        assert driver.job.rows == [None, "all that was noted"]
        assert [each.is_again for each in driver.job.attempts] == [False, True]
        (report,) = driver.reported
        assert (report.attempts, report.counts.dead) == (1, {"not_json": 1})
        assert len(list(dead_letters.scan())) == 1


def test_keys_of_refused_events_are_erased_once_all_dead_letters_are_put(tmp_path: Path) -> None:
    with closing(AwayAtFirst(tmp_path / "letters.db")) as dead_letters:
        driver = Driver(tmp_path, dead_letters, retries=1)
        driver.job.refused = list(driver.pipeline.map(at(1)).fragments)
        driver.pipeline.store.erase(driver.job.refused, may(9))
        dead_letters.times = 2
        with pytest.raises(StoreError, match="the disk is full"):
            driver.take()
        assert driver.pipeline.key_store.counts() == {1: 1}
        driver.take()
        assert driver.pipeline.key_store.counts() == {}
        assert [report.counts.refused for report in driver.reported] == [[]]


def test_a_source_that_fails_again_leaves_no_dead_letters_of_the_first_time_whatever_breaks_off(
    tmp_path: Path,
) -> None:
    with closing(AwayAtFirst(tmp_path / "letters.db")) as dead_letters:
        driver = Driver(tmp_path, dead_letters, retries=0)
        driver.job.run(None, BatchAttempt("f/query/7", "a"), cast(Any, None), False)
        (first,) = dead_letters.scan()
        dead_letters.drop([first.id])
        dead_letters.put([first._replace(id="b" * 32)])
        driver.fail("web", first=first.batch)
        with pytest.raises(PowerLostError):
            driver.take()
        assert [each.batch for each in dead_letters.scan()] == [driver.job.attempts[-1].batch]
