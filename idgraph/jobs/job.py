"""The base of all jobs, and their runner: by pages, under its lock, with progress, resume point, pace and cancellation.

The runner prints nothing and ends no process: the command line, the flows and the API all run jobs by it.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from idgraph.model.errors import IdgraphError, JobStoppedError, SealError
from idgraph.model.jobs import JobIdentity, JobKind, JobLog, JobRecord, JobState, Point, Progress, Requester

if TYPE_CHECKING:
    from transforms.privacy.record_sealing import DeadLetterSealer

log = logging.getLogger(__name__)

_SEALED = "job"
"""The text in place of a dead letter's position: no dead letter has this one."""
HEARTBEAT_SECONDS = 0.5
"""The least seconds between two saves of progress, at which a request to cancel is noticed."""


class Plan(NamedTuple):
    """The work ahead of a job. `resumes` says whether it takes up an earlier run."""

    title: str
    total: int
    unit: str = "profile"
    resumes: bool = False


class Job(ABC):
    """Bounded work, each part durable when it is done. A part may be done twice: an interrupted job resumes
    at the last point that was kept."""

    kind: ClassVar[JobKind]
    reopens: ClassVar[bool] = False
    """Whether a finished job is taken up again when there is more to do."""
    target: str = ""
    """The object of its work: of one kind and target, one job runs at a time."""

    what: Mapping[str, Any] = MappingProxyType({})
    """Its parameters as JSON data, for the log: no personal data."""

    @abstractmethod
    def plan(self, point: Point) -> Plan:
        """The work ahead from a point; called once, under the job's lock."""

    def work(self, run: Run) -> None:
        """Do the work behind `run.point`, and call `run.page` after each part. Raises JobStoppedError, and
        the errors of the stores; run it again then."""
        raise NotImplementedError

    def paced(self, progress: Progress) -> int:
        """The number that a rate bounds."""
        return progress.done


class PagedJob(Job):
    """A job that does its work page by page."""

    @abstractmethod
    def pages(self, progress: Progress, point: Point) -> Iterator[Point]:
        """Do the work behind `point`; yields after each page the point at which the next begins. Raises the
        errors of the stores; run it again then."""

    def work(self, run: Run) -> None:
        for point in self.pages(run.progress, run.point):
            run.page(point)


class Run:
    """One run of a job, as `JobRunner.started` yields it."""

    def __init__(
        self,
        job: Job,
        job_id: str,
        plan: Plan,
        progress: Progress,
        point: Point,
        pace: Pace,
        keep: Callable[[Run], bool],
    ) -> None:
        self.id = job_id
        self.plan = plan
        self.watch: Callable[[Run], None] = lambda _: None
        """Called after each page, and before it is stopped."""
        self.progress = progress
        self.point = point
        self._job = job
        self._before = job.paced(progress)
        self._pace = pace
        self._keep = keep
        self._kept = time.monotonic()

    def page(self, point: Point, durable: bool = False) -> None:
        """Note a finished page; the next begins at `point`. `durable` keeps it at once.

        Raises JobStoppedError when the job must end here.
        """
        self.point = point
        self.watch(self)
        pause = self._pace.pause(self._job.paced(self.progress) - self._before)
        ends = time.monotonic() + pause
        is_due = durable or pause > HEARTBEAT_SECONDS
        while True:
            now = time.monotonic()
            if is_due or now - self._kept >= HEARTBEAT_SECONDS:
                self._kept, is_due = now, False
                if self._keep(self):
                    raise JobStoppedError(f"job {self.id} was cancelled; the same command resumes it")
            if self._pace.wait(min(HEARTBEAT_SECONDS, ends - now)):
                self.watch(self)
                message = f"job {self.id} was stopped; the same command resumes it"
                raise JobStoppedError(message, is_cancelled=False)
            if time.monotonic() >= ends:
                break
        self._pace.resume()


class Pace:
    """The pace of a job: at most `rate` units per second, and at most a share of one core; until `stop` is
    set. `idle_share` is the share of pages in which no unit was done, by default the same."""

    def __init__(
        self,
        rate: float | None = None,
        share: float = 1.0,
        stop: threading.Event | None = None,
        idle_share: float | None = None,
    ) -> None:
        self._rate = rate
        self._share = share
        self._idle_share = share if idle_share is None else idle_share
        self._done = 0
        self._stop = stop or threading.Event()
        self._began = self._resumed = time.monotonic()

    def pause(self, done: int) -> float:
        """The seconds to wait after `done` units."""
        now = time.monotonic()
        share = self._share if done > self._done else self._idle_share
        self._done = done
        pause = (now - self._resumed) * (1 / share - 1)
        return max(0.0, pause, self._began + done / self._rate - now if self._rate else 0.0)

    def wait(self, seconds: float) -> bool:
        """Wait; returns whether to stop."""
        return self._stop.wait(seconds) if seconds > 0 else self._stop.is_set()

    def resume(self) -> None:
        """Note that a pause is over."""
        self._resumed = time.monotonic()


class JobRunner:
    """Runs jobs and keeps their log. For any number of threads."""

    def __init__(
        self,
        log: JobLog,
        sealer: DeadLetterSealer,
        note: Callable[[Job, JobRecord], None] = lambda _job, _record: None,
    ) -> None:
        """`sealer` seals resume points, notes and errors, which may name persons. `note` records that a job begins, before it
        does anything."""
        self.log = log
        self._note = note
        self._sealer = sealer

    def run(
        self,
        job: Job,
        origin: Requester,
        again: bool = False,
        pace: Pace | None = None,
        watch: Callable[[Run], None] = lambda _: None,
    ) -> Progress:
        """Run a job to its end; returns its final progress. `watch` is called at the start, after each page,
        and before it is stopped; it may set the point.

        Blocks. Raises AlreadyRunningError, JobStoppedError when it was cancelled or stopped, and the errors
        of the job. `again` starts over, without the point of an earlier run.
        """
        with self.started(job, origin, again, pace) as run:
            watch(run)
            run.watch = watch
            job.work(run)
        if job.kind is JobKind.ERASE:
            self.forget_notes()
        return run.progress

    @contextmanager
    def started(
        self, job: Job, origin: Requester, again: bool = False, pace: Pace | None = None
    ) -> Iterator[Run]:
        """A run of a job whose pages the block does; the job has ended when the block ends. Raises as `run` does."""
        identity = JobIdentity(job.kind, job.target, job.what, job.reopens)
        with self.log.running(identity, origin, again) as record:
            self._note(job, record)
            kept = self.private(record)
            point = kept.get("point", {})
            progress, plan = record.progress, job.plan(point)
            if plan.resumes and point:
                progress.notes = kept.get("notes", {})
            else:
                point, progress = {}, Progress()
            progress.total = max(plan.total, progress.done)
            progress.unit, progress.resumed = plan.unit, plan.resumes
            progress.begun_at, progress.begun_done = int(time.time() * 1000), progress.done
            run = Run(job, record.id, plan, progress, point, pace or Pace(), self._keep)
            self._keep(run)
            state, error = JobState.INTERRUPTED, ""
            try:
                yield run
                state = JobState.DONE
            except JobStoppedError as stopped:
                state = JobState.CANCELLED if stopped.is_cancelled else JobState.INTERRUPTED
                raise
            except Exception as failure:
                state = JobState.CANCELLED if isinstance(failure, BrokenPipeError) else JobState.FAILED
                # Only the type of others: the message of a stranger's exception may quote a value.
                error = str(failure) if isinstance(failure, IdgraphError) else type(failure).__name__
                raise
            finally:
                self.log.end(run.id, state, run.progress, self._sealed(run, error))

    def private(self, record: JobRecord) -> dict[str, Any]:
        """The resume point (`point`), examples (`notes`) and error of a job; empty where they cannot be opened."""
        if not record.private:
            return {}
        try:
            kept = json.loads(self._sealer.open(record.private, record.id, _SEALED))
        except (SealError, ValueError):
            log.warning(
                "job %s: this keyring does not open its notes and resume point; resumed, it would begin again",
                record.id,
            )
            return {}
        return kept if isinstance(kept, dict) else {}

    def forget_notes(self) -> None:
        """Drop the examples and errors of jobs that are not running: they may name somebody who was erased."""
        for record in self.log.scan():
            kept = self.private(record) if record.state is not JobState.RUNNING else {}
            if kept.get("notes") or kept.get("error"):
                point = json.dumps({"point": kept["point"]}).encode()
                self.log.reseal(record.id, self._sealer.seal(point, record.id, _SEALED))

    def _keep(self, run: Run) -> bool:
        return self.log.keep(run.id, run.progress, self._sealed(run, ""))

    def _sealed(self, run: Run, error: str) -> bytes:
        kept = {"point": dict(run.point), "notes": run.progress.notes, "error": error}
        return self._sealer.seal(json.dumps(kept).encode(), run.id, _SEALED)
