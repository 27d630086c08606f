"""How a rotation is paced and shown: a bar on a terminal, else a line every few seconds."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from app.output import counted

if TYPE_CHECKING:
    from transforms.rotation import RotationProgress

LINE_SECONDS = 5.0


def paced(rotation: Iterator[RotationProgress], rate: int | None) -> Iterator[RotationProgress]:
    """The same rotation, at most `rate` data keys a second."""
    started = time.monotonic()
    for progress in rotation:
        if rate:
            time.sleep(max(0.0, started + progress.looked_at / rate - time.monotonic()))
        yield progress


def shown(rotation: Iterator[RotationProgress]) -> RotationProgress:
    """Run a rotation to its end and show on standard error how far it is; gives how it ended."""
    first = next(rotation)
    begun = "goes on" if first.resumed else "begins"
    print(
        f"the rotation to version {first.version} {begun}: {counted(first.total, 'data key')}",
        file=sys.stderr,
    )
    show = _as_bar if sys.stderr.isatty() else _as_lines
    show(rotation, first)
    return first


def _as_lines(rotation: Iterator[RotationProgress], first: RotationProgress) -> None:
    due = time.monotonic() + LINE_SECONDS
    for progress in rotation:
        if time.monotonic() >= due:
            due = time.monotonic() + LINE_SECONDS
            print(f"{progress.looked_at:,} of {first.total:,}", file=sys.stderr, flush=True)


def _as_bar(rotation: Iterator[RotationProgress], first: RotationProgress) -> None:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("data keys"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("", total=first.total)
        for progress in rotation:
            bar.update(task, completed=progress.looked_at)
