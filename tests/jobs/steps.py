"""Jobs step by step, without a log, so that a test can do something between two pages."""

from __future__ import annotations

from collections.abc import Iterator

from idgraph.jobs.job import PagedJob
from idgraph.model.jobs import Point, Progress


def steps(job: PagedJob, point: Point | None = None) -> Iterator[Progress]:
    """The progress at the start and after each page; the same object each time."""
    plan = job.plan(point or {})
    progress = Progress(plan.total, plan.unit, resumed=plan.resumes)
    yield progress
    for _ in job.pages(progress, point or {}):
        yield progress


def ended(job: PagedJob) -> Progress:
    """Run a job to its end; gives how it ended."""
    *_, last = steps(job)
    return last
