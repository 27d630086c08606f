"""Dead letters of one task: into their store, or to the driver with the task's reports."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from idgraph.model.dead_letters import DeadLetter
from idgraph.model.errors import FlowStoppedError

REPORTED_BYTES = 64 * 1024 * 1024
"""Of sealed records, that one task hands to the driver at most, whose memory they lie in until they are put."""


class TaskDeadLetters:
    """One task's. `put` writes into their store; None where the task has no way to it."""

    def __init__(self, put: Callable[[Sequence[DeadLetter]], None] | None) -> None:
        self._put = put
        self._bytes = 0
        self._reasons: Counter[str] = Counter()

    def left(self, dead_letters: list[DeadLetter]) -> list[DeadLetter]:
        """Put dead letters; gives those that only the driver can.

        Raises FlowStoppedError when what is left for the driver is too much for it, before it is on its way.
        """
        if self._put is None:
            self._count(dead_letters)
            return dead_letters
        if dead_letters:
            self._put(dead_letters)
        return []

    def _count(self, dead_letters: list[DeadLetter]) -> None:
        for dead_letter in dead_letters:
            self._bytes += len(dead_letter.payload)
            self._reasons[dead_letter.reason] += 1
        if self._bytes > REPORTED_BYTES:
            worst, _ = self._reasons.most_common(1)[0]
            raise FlowStoppedError(
                f"the dead letters of one task are more than {REPORTED_BYTES >> 20} MB, which the driver would have to "
                f"hold ({self._reasons.total()} so far, most: {worst}; none was put). The micro-batch is not marked "
                "done and will be read again. Mend the cause, or have it taken with a local `[flow] master`, then run "
                "again (docs/cluster.md)"
            )
