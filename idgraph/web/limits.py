"""Rate limits per caller, by token buckets in the memory of one process."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

MOST_CALLERS = 10_000


class Turn(NamedTuple):
    """Whether a request may go on, and what the caller has left. `reset_seconds` is until the limit is whole again, or, of a
    request that is refused, until the next one may come."""

    is_granted: bool
    limit: int
    remaining: int
    reset_seconds: int

    def headers(self) -> Iterator[tuple[bytes, bytes]]:
        """As in draft-ietf-httpapi-ratelimit-headers-07."""
        yield b"ratelimit-limit", b"%d" % self.limit
        yield b"ratelimit-remaining", b"%d" % self.remaining
        yield b"ratelimit-reset", b"%d" % self.reset_seconds


class RateLimit:
    """`per_second` requests of each caller in the long run, `burst` at once. Safe for several threads."""

    def __init__(self, per_second: float, burst: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._per_second = per_second
        self._burst = burst
        self._clock = clock
        self._left: dict[str, tuple[float, float]] = {}
        self._lock = threading.Lock()

    def take(self, name: str) -> Turn:
        """One request of this caller."""
        now = self._clock()
        with self._lock:
            left, at = self._left.get(name, (float(self._burst), now))
            left = min(float(self._burst), left + (now - at) * self._per_second)
            is_granted = left >= 1
            if name not in self._left and len(self._left) >= MOST_CALLERS:
                self._left.clear()
            self._left[name] = (left - is_granted, now)
        missing = self._burst - left + 1 if is_granted else 1 - left
        return Turn(is_granted, self._burst, int(left - is_granted), math.ceil(missing / self._per_second))
