"""Showing how far a long job is: a bar on a terminal, else a line every few seconds, on standard error."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from typing import Protocol, TypeVar

from idgraph.app.observation.json_logs import is_on, say

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
