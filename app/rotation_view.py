"""How a rotation is shown."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from app import progress_view
from app.output import counted

if TYPE_CHECKING:
    from transforms.rotation import RotationProgress


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
