"""Jobs step by step, without a log, so that a test can do something between two pages."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import closing
from pathlib import Path

from idgraph.jobs.job import JobRunner, PagedJob
from idgraph.model.jobs import Point, Progress, Requester
from sinks.keyring.provider import KeyringFile
from sinks.sqlite.jobs import SqliteJobLog
from transforms.privacy.record_sealing import DeadLetterSealer


def steps(job: PagedJob, point: Point | None = None) -> Iterator[Progress]:
    """The progress at the start and after each page; the same object each time."""
    plan = job.plan(point or {})
    progress = Progress(plan.total, plan.unit, resumed=plan.resumes)
    yield progress
    for _ in job.pages(progress, point or {}):
        yield progress


def stepped(folder: Path, job: PagedJob, again: bool = False) -> Generator[Progress, None, None]:
    """The same with the log in a folder: what was closed before its end is resumed by the next."""
    file = folder / "keyring.json"
    provider = KeyringFile(file) if file.exists() else KeyringFile.create(file)
    with closing(SqliteJobLog(folder / "jobs.db", folder / "jobs")) as log:
        runner = JobRunner(log, DeadLetterSealer(provider))
        with runner.started(job, Requester("test"), again) as run:
            yield run.progress
            for point in job.pages(run.progress, run.point):
                run.page(point, durable=True)
                yield run.progress


def ended(job: PagedJob) -> Progress:
    """Run a job to its end; gives how it ended."""
    *_, last = steps(job)
    return last
