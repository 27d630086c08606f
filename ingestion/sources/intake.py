"""How a flow takes its files: until when, how many at once, and how fast."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple


class Intake(NamedTuple):
    """`batch_bytes` bounds a micro-batch by the size of its files, in place of `max_files_per_batch`; a file that is
    larger is a micro-batch of its own. `rate` is in events a second; None: as fast as it goes."""

    until_done: bool = False
    batch_bytes: int | None = None
    rate: float | None = None


class Throttle:
    """Holds the next micro-batch back until what was taken so far is no more than `rate` events a second."""

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._due = clock()

    def took(self, events: int, began: float) -> None:
        """So many events were taken in a micro-batch that began at this time of the clock."""
        if self._rate:
            # From when it began, not from when it was due: what was slow is not caught up with in a burst.
            self._due = max(self._due, began) + events / self._rate

    def wait(self, stop: threading.Event) -> None:
        """Block until the next micro-batch may begin, or `stop` is set."""
        while (left := self._due - self._clock()) > 0 and not stop.wait(left):
            pass
