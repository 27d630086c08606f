"""How a rotation is paced and shown."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from app import progress_view
from app.output import counted

if TYPE_CHECKING:
    from transforms.rotation import RotationProgress


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
    progress_view.show(rotation, first.total, "data keys")
    return first
