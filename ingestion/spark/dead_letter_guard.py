"""Too many dead letters stop a flow, loudly, before it drains its input into them."""

from __future__ import annotations

from collections import deque

from idgraph.model.errors import FlowStoppedError
from ingestion.sources.configuration import DeadLetterLimits
from ingestion.stages.outcomes import StageReport


class DeadLetterGuard:
    """Looks at the latest micro-batches that together hold about `window` events."""

    def __init__(self, limits: DeadLetterLimits) -> None:
        self._limits = limits
        self._batches: deque[tuple[int, int]] = deque()

    def check(self, report: StageReport) -> None:
        """Raises FlowStoppedError when the share of dead letters is above the limit."""
        batches = self._batches
        batches.append((report.events, report.dead_letter_count()))
        while sum(events for events, _ in list(batches)[1:]) >= self._limits.window:
            batches.popleft()
        events, dead = (sum(column) for column in zip(*batches, strict=True))
        if dead >= self._limits.minimum and dead > self._limits.max_rate * events:
            worst = max(report.dead, key=lambda reason: report.dead[reason], default="earlier batches")
            raise FlowStoppedError(
                f"{dead} of the latest {events} events became dead letters, more than the allowed share of "
                f"{self._limits.max_rate:g} (most in this batch: {worst}). The micro-batch is not marked done and "
                "will be read again. See `idgraph dead-letters list`, repair the cause, then run again"
            )
