"""How many offsets a micro-batch may have: as many as the flow takes in good time.

Offsets and not records, since that is what Spark bounds: where transactions end or compaction took records away, an
offset holds none.
"""

from __future__ import annotations

from collections import deque

FIRST_OFFSETS = 10_000
"""Of a flow that has not learnt yet."""

_REMEMBERED = 3
_FULL = 0.9
"""A micro-batch of so much of the bound may have had to leave some for the next: the flow is behind."""


class BatchBound:
    """The bound is what the last micro-batches' rate takes in `seconds`, between `least` and `most`. It is lowered when
    one took longer, raised when one was full, and only to half or to double and beyond, since a change costs a moment.
    Not safe for several threads."""

    def __init__(self, least: int, most: int, seconds: float) -> None:
        self._least = min(least, most)
        self._most = most
        self._seconds = seconds
        self._past: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)
        self.present = max(self._least, min(most, FIRST_OFFSETS))

    def took(self, offsets: int, seconds: float) -> None:
        """A micro-batch of so many offsets took so long."""
        if not offsets or seconds <= 0:
            return
        self._past.append((offsets, seconds))
        rate = sum(count for count, _ in self._past) / sum(taken for _, taken in self._past)
        wanted = int(max(self._least, min(self._most, rate * self._seconds)))
        is_slow = seconds > self._seconds and wanted <= self.present // 2
        is_behind = offsets >= self.present * _FULL and (wanted >= 2 * self.present or wanted == self._most)
        if is_slow or is_behind:
            self.present = wanted
