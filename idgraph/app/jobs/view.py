"""Progress of a job, for people: a bar on a terminal, else a line every few seconds, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from idgraph.app.observation.json_logs import is_on, say
from idgraph.app.terminal import counted
from idgraph.model.text import duration

if TYPE_CHECKING:
    from collections.abc import Callable

    from idgraph.jobs.job import Job, JobRunner, Run
    from idgraph.model.jobs import Progress, Requester

LINE_SECONDS = 5.0


def run_shown(
    runner: JobRunner, job: Job, origin: Requester, again: bool = False, rate: float | None = None
) -> Progress:
    """Run a job to its end and show its progress; returns the final one. Raises as `JobRunner.run` does."""
    from idgraph.jobs.job import Pace

    with showing() as show:
        return runner.run(job, origin, again, Pace(rate), show)


@contextmanager
def showing() -> Iterator[Callable[[Run], None]]:
    """The view of a run: called at its start, and again after each page."""
    if sys.stderr.isatty() and not is_on():
        with _bar() as show:
            yield show
    else:
        yield _Lines()


class Estimate:
    """The remaining time at the rate since the first page of this run, which may have a start in it."""

    def __init__(self) -> None:
        self._began: tuple[float, int] | None = None

    def seconds_left(self, progress: Progress) -> float | None:
        """None while it cannot be determined."""
        now = time.monotonic()
        if self._began is None:
            self._began = now, progress.done
            return None
        began, before = self._began
        done = progress.done - before
        return max(0, progress.total - progress.done) * (now - began) / done if done > 0 else None


class _Lines:
    """A line at the start, then at most one every `LINE_SECONDS`."""

    def __init__(self) -> None:
        self._due: float | None = None
        self._estimate = Estimate()

    def __call__(self, run: Run) -> None:
        if self._due is None:
            say(beginning(run))
        else:
            left = self._estimate.seconds_left(run.progress)
            if time.monotonic() < self._due:
                return
            say(line(run.progress, left))
        self._due = time.monotonic() + LINE_SECONDS


def beginning(run: Run) -> str:
    """The line at the start of a job."""
    progress = run.progress
    begins = "begins"
    if progress.resumed:
        begins = f"resumes after {progress.done:,}" if progress.done else "resumes"
    return f"{run.plan.title} {begins}: {counted(progress.total, progress.unit)}"


def line(progress: Progress, seconds_left: float | None = None) -> str:
    """The progress in words."""
    total = max(progress.total, progress.done)
    parts = [f"{progress.done:,} of {counted(total, progress.unit)}"]
    parts += [
        f"{number:,} {name.replace('_', ' ').removesuffix('s' if number == 1 else '')}"
        for name, number in progress.counts.items()
        if number and "/" not in name
    ]
    if seconds_left is not None:
        parts.append(f"about {duration(seconds_left)} left")
    return ", ".join(parts)


@contextmanager
def _bar() -> Iterator[Callable[[Run], None]]:
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True)) as bar:
        task: bars.TaskID | None = None

        def show(run: Run) -> None:
            nonlocal task
            progress = run.progress
            if task is None:
                bar.console.print(beginning(run), highlight=False, markup=False)
                task = bar.add_task("")
            total = max(progress.total, progress.done)
            bar.update(task, completed=progress.done, total=total, description=line(progress))

        yield show
