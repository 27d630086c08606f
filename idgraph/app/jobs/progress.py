"""Showing how far a long job is: a bar on a terminal, else a line every few seconds, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, TypeVar

from idgraph.app.observation.json_logs import is_on, say
from idgraph.app.terminal.output import counted

if TYPE_CHECKING:
    from idgraph.app.jobs.backfill import BackfillStep


LINE_SECONDS = 5.0


class Progress(Protocol):
    """`looked_at` of `total` are done; more than `total` may come to be."""

    @property
    def total(self) -> int: ...

    @property
    def looked_at(self) -> int: ...


Shown = TypeVar("Shown", bound=Progress)


def paced(job: Iterator[Shown], rate: int | None, done: Callable[[Shown], int]) -> Iterator[Shown]:
    """The same job, at most `rate` a second of what `done` counts; as fast as it goes without one."""
    started = time.monotonic()
    for progress in job:
        if rate:
            time.sleep(max(0.0, started + done(progress) / rate - time.monotonic()))
        yield progress


def show(job: Iterator[Progress], total: int, things: str) -> None:
    """Run a job to its end and show how far it is."""
    if sys.stderr.isatty() and not is_on():
        _as_bar(job, total, things)
    else:
        _as_lines(job, total)


def _as_lines(job: Iterator[Progress], total: int) -> None:
    due = time.monotonic() + LINE_SECONDS
    for progress in job:
        if time.monotonic() >= due:
            due = time.monotonic() + LINE_SECONDS
            say(f"{progress.looked_at:,} of {max(total, progress.looked_at):,}")


def _as_bar(job: Iterator[Progress], total: int, things: str) -> None:
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn(things),
        bars.BarColumn(),
        bars.MofNCompleteColumn(),
        bars.TimeRemainingColumn(),
    )
    with bars.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=total)
        for progress in job:
            bar.update(task, completed=progress.looked_at, total=max(total, progress.looked_at))


Show = Callable[["BackfillStep"], None]


@contextmanager
def showing(total: int, done: int) -> Iterator[Show]:
    """What shows a step; `total` bytes are to be taken and `done` were before."""
    if sys.stderr.isatty() and not is_on():
        with _bar(total, done) as show:
            yield show
    else:
        yield _Lines()


class _Lines:
    """Plain lines, at most one every `LINE_SECONDS`."""

    def __init__(self) -> None:
        self._due = time.monotonic()

    def __call__(self, step: BackfillStep) -> None:
        if time.monotonic() >= self._due:
            self._due = time.monotonic() + LINE_SECONDS
            say(line(step))


def line(step: BackfillStep) -> str:
    """How far it is, in words."""
    share = step.done.bytes / step.bytes if step.bytes else 1.0
    rate = step.report.counts.events / step.report.seconds if step.report.seconds else 0.0
    reported = [
        f"{step.done.files:,} of {counted(step.files, 'file')} ({min(1.0, share):.0%})",
        counted(step.done.events, "event"),
        f"{rate:,.0f}/s",
    ]
    for number, thing in ((step.done.dead_letters, "dead letter"), (step.done.conflicts, "conflict")):
        if number:
            reported.append(counted(number, thing))
    if step.seconds_left is not None:
        reported.append(f"about {duration(step.seconds_left)} left")
    return ", ".join(reported)


def duration(seconds: float) -> str:
    """A length of time as people say it: `40 s`, `5 min`, `3 h 20 min`."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


@contextmanager
def _bar(total: int, done: int) -> Iterator[Show]:
    from rich import progress as bars
    from rich.console import Console

    columns = (
        bars.TextColumn("{task.description}"),
        bars.BarColumn(),
        bars.TaskProgressColumn(),
        bars.TextColumn("{task.fields[left]}"),
    )
    with bars.Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("starting Spark", total=total, completed=done, left="")

        def show(step: BackfillStep) -> None:
            left = "" if step.seconds_left is None else f"{duration(step.seconds_left)} left"
            reported = (
                f"{step.done.files:,} of {counted(step.files, 'file')}, {counted(step.done.events, 'event')}"
            )
            bar.update(task, completed=step.done.bytes, description=reported, left=left)

        yield show
