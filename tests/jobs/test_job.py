"""How a job runs: progress, resumption, cancellation, pace, and what the log keeps of it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from idgraph.jobs import job as jobs
from idgraph.jobs.job import JobRunner, Pace, PagedJob, Plan, Run
from idgraph.model.errors import AlreadyRunningError, JobStoppedError, StoreError
from idgraph.model.jobs import JobKind, JobLog, JobRecord, JobState, Point, Progress, Requester
from sinks.keyring.provider import KeyringFile
from tests.contracts.implementations import JOB_LOGS, Implementation
from tests.contracts.processes import start
from tests.servers.dynamodb import stored
from tests.support.patience import eventually
from transforms.privacy.record_sealing import DeadLetterSealer

ORIGIN = Requester("ada", "a test")


class Counting(PagedJob):
    """Counts to `total`, ten units per page; may fail at one of them."""

    kind = JobKind.RECONCILE

    def __init__(self, total: int = 50, fails_at: int = -1, target: str = "", what: str = "") -> None:
        self.target = target
        self.pages_done: list[int] = []
        self._total = total
        self._fails_at = fails_at
        self.what = {"what": what}

    def plan(self, point: Point) -> Plan:
        return Plan("counting", self._total, "unit", bool(point))

    def pages(self, progress: Progress, point: Point) -> Iterator[Point]:
        for at in range(point.get("at", 0), self._total, 10):
            if at == self._fails_at:
                raise StoreError("the disk of canary@example.com is full")
            self.pages_done.append(at)
            progress.done = at + 10
            progress.counts["units"] += 10
            progress.note("seen", [f"canary@example.com {at}"])
            yield {"at": at + 10, "name": "canary@example.com"}


@pytest.fixture(params=JOB_LOGS, ids=str)
def kept(request: pytest.FixtureRequest) -> Implementation[JobLog]:
    implementation: Implementation[JobLog] = request.param
    return implementation


@pytest.fixture
def log(kept: Implementation[JobLog], tmp_path: Path) -> Iterator[JobLog]:
    with kept.opened(tmp_path) as opened:
        yield opened


@pytest.fixture
def runner(tmp_path: Path, log: JobLog) -> JobRunner:
    return runner_in(tmp_path, log)


def log_in(folder: Path, name: str) -> JobLog:
    (found,) = (each for each in JOB_LOGS if each.name == name)
    return found.open(folder)


def runner_in(folder: Path, log: JobLog) -> JobRunner:
    keyring = folder / "keyring.json"
    provider = KeyringFile(keyring) if keyring.exists() else KeyringFile.create(keyring)
    return JobRunner(log, DeadLetterSealer(provider))


def only(log: JobLog) -> JobRecord:
    (record,) = log.scan()
    return record


def test_a_job_runs_to_its_end_and_the_log_has_it(runner: JobRunner, log: JobLog) -> None:
    seen: list[int] = []
    done = runner.run(Counting(what="x"), ORIGIN, watch=lambda run: seen.append(run.progress.done))
    assert seen == [0, 10, 20, 30, 40, 50]
    assert (done.done, done.total, done.counts["units"]) == (50, 50, 50)
    record = only(log)
    assert (record.state, record.origin, record.what) == (JobState.DONE, ORIGIN, {"what": "x"})
    assert (record.progress.done, record.progress.unit) == (50, "unit")


def test_what_failed_resumes_at_its_last_page(runner: JobRunner, log: JobLog) -> None:
    with pytest.raises(StoreError):
        runner.run(Counting(fails_at=30), ORIGIN)
    failed = only(log)
    assert (failed.state, failed.progress.done) == (JobState.FAILED, 30)
    assert "disk" in runner.private(failed)["error"]
    again = Counting()
    done = runner.run(again, Requester("bob"))
    assert again.pages_done == [30, 40]
    assert (done.counts["units"], done.resumed, len(done.notes["seen"])) == (50, True, 5)
    assert (only(log).id, only(log).state, only(log).origin.who) == (failed.id, JobState.DONE, "bob")


def test_a_job_that_is_done_or_another_or_begun_again_is_a_new_one(runner: JobRunner, log: JobLog) -> None:
    for job, again in (
        (Counting(), False),
        (Counting(fails_at=30), False),
        (Counting(fails_at=30, what="other"), False),
        (Counting(what="other"), True),
    ):
        try:
            runner.run(job, ORIGIN, again=again)
        except StoreError:
            continue
        assert job.pages_done == [0, 10, 20, 30, 40]
    assert [each.state for each in log.scan()] == [
        JobState.DONE,
        JobState.FAILED,
        JobState.FAILED,
        JobState.DONE,
    ]


def test_one_runs_at_a_time_of_a_kind_and_target(runner: JobRunner, log: JobLog) -> None:
    with runner.started(Counting(), ORIGIN) as run:
        with pytest.raises(AlreadyRunningError, match=run.id):
            runner.run(Counting(), ORIGIN)
        runner.run(Counting(target="other"), ORIGIN)
    assert {each.state for each in log.scan()} == {JobState.DONE}


def test_a_cancelled_job_ends_at_its_next_page_and_resumes(
    runner: JobRunner,
    log: JobLog,
    kept: Implementation[JobLog],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(jobs, "HEARTBEAT_SECONDS", 0.0)

    def cancel(run: Run) -> None:
        if run.progress.done == 20:
            with kept.opened(tmp_path) as other:
                assert other.cancel(run.id)

    with pytest.raises(JobStoppedError) as stopped:
        runner.run(Counting(), ORIGIN, watch=cancel)
    assert stopped.value.is_cancelled
    assert (only(log).state, only(log).progress.done) == (JobState.CANCELLED, 20)
    assert not log.cancel(only(log).id), "it is not running"
    again = Counting()
    runner.run(again, ORIGIN)
    assert again.pages_done == [20, 30, 40]


def test_a_stopped_job_is_interrupted(runner: JobRunner, log: JobLog) -> None:
    stop = threading.Event()
    with pytest.raises(JobStoppedError) as stopped:
        runner.run(Counting(), ORIGIN, pace=Pace(stop=stop), watch=lambda _: stop.set())
    assert not stopped.value.is_cancelled
    assert (only(log).state, only(log).progress.done) == (JobState.INTERRUPTED, 10)


PROGRAM = """
import sys, threading
from pathlib import Path
from tests.jobs.test_job import Counting, log_in, runner_in, ORIGIN
folder = Path(sys.argv[1])
with runner_in(folder, log_in(folder, sys.argv[2])).started(Counting(), ORIGIN) as run:
    run.progress.done = 20
    run.page({"at": 20}, durable=True)
    print(run.id, flush=True)
    threading.Event().wait()
"""


@pytest.mark.process
def test_a_job_whose_process_was_killed_is_interrupted_and_resumes(
    runner: JobRunner, log: JobLog, kept: Implementation[JobLog], tmp_path: Path
) -> None:
    process = start(PROGRAM, tmp_path, kept.name)
    assert process.stdout is not None
    job_id = process.stdout.readline().strip()
    assert (only(log).id, only(log).state) == (job_id, JobState.RUNNING)
    with pytest.raises(AlreadyRunningError):
        runner.run(Counting(), ORIGIN)
    process.kill()
    process.communicate()
    eventually(lambda: only(log).state == JobState.INTERRUPTED)
    again = Counting()
    runner.run(again, ORIGIN)
    assert again.pages_done == [20, 30, 40]
    assert [*tmp_path.glob("jobs/*")] == []


def test_nothing_that_may_name_a_person_stands_in_the_file(
    runner: JobRunner, log: JobLog, tmp_path: Path
) -> None:
    with pytest.raises(StoreError):
        runner.run(Counting(fails_at=40), ORIGIN)
    assert runner.private(only(log))["point"]["name"] == "canary@example.com"
    kept = [each.read_bytes() for each in tmp_path.glob("jobs.db*")]
    kept += [repr(each).encode() for each in stored(tmp_path)]
    assert any(b"reconcile" in each for each in kept)
    assert not any(b"canary" in each for each in kept)


def test_under_another_keyring_it_begins_again(runner: JobRunner, log: JobLog, tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        runner.run(Counting(fails_at=30), ORIGIN)
    (tmp_path / "keyring.json").unlink()
    again = Counting()
    done = runner_in(tmp_path, log).run(again, ORIGIN)
    assert (again.pages_done, done.counts["units"]) == ([0, 10, 20, 30, 40], 50)


def test_progress_is_kept_seldom_enough(runner: JobRunner, log: JobLog) -> None:
    saved: list[int] = []
    keep = log.keep

    def counted(job_id: str, progress: Progress, private: bytes) -> bool:
        saved.append(progress.done)
        return keep(job_id, progress, private)

    log.keep = counted  # type: ignore[method-assign]
    runner.run(Counting(total=10_000), ORIGIN)
    assert len(saved) < 20
    assert only(log).progress.done == 10_000


def test_a_job_is_paced(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]

    class Stop(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            clock[0] += timeout or 0.0
            return False

    # That of this module alone: all event loops of the process sleep by the other, and one may never wake up again.
    monkeypatch.setattr("idgraph.jobs.job.time", SimpleNamespace(monotonic=lambda: clock[0]))

    def paced(pace: Pace) -> Run:
        return Run(Counting(), "1", Plan("", 0), Progress(done=5000), {}, pace, lambda _: False)

    run = paced(Pace(rate=50, stop=Stop()))
    for done in range(0, 1001, 100):
        run.progress.done = 5000 + done
        run.page({})
    assert clock[0] == pytest.approx(20)
    run = paced(Pace(share=0.1, stop=Stop()))
    for _ in range(10):
        clock[0] += 1.0
        run.page({})
    assert clock[0] == pytest.approx(120)
    run = paced(Pace(share=0.5, stop=Stop(), idle_share=0.1))
    for number in range(10):
        clock[0] += 1.0
        run.progress.done += number % 2
        run.page({})
    assert clock[0] == pytest.approx(120 + 5 * 2 + 5 * 10)


def test_a_job_is_cancelled_in_a_long_pause(
    runner: JobRunner, log: JobLog, kept: Implementation[JobLog], tmp_path: Path
) -> None:
    def cancel(run: Run) -> None:
        if run.progress.done:
            with kept.opened(tmp_path) as other:
                assert other.cancel(run.id)

    with pytest.raises(JobStoppedError):
        runner.run(Counting(), ORIGIN, pace=Pace(rate=0.01), watch=cancel)
    assert (only(log).state, only(log).progress.done) == (JobState.CANCELLED, 10)
