"""How a rotation is shown."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from idgraph.app.jobs import progress as progress_view
from idgraph.app.observation.json_logs import say
from idgraph.app.terminal.output import counted

if TYPE_CHECKING:
    from transforms.privacy.rotation import RotationProgress


def shown(rotation: Iterator[RotationProgress]) -> RotationProgress:
    """Run a rotation to its end and show on standard error how far it is; gives how it ended."""
    first = next(rotation)
    begun = "goes on" if first.resumed else "begins"
    say(f"the rotation to version {first.version} {begun}: {counted(first.total, 'data key')}")
    progress_view.show(rotation, first.total, "data keys")
    return first
