"""Pauses between retries."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

_MOST_DOUBLED = 60
"""A base of a millisecond is beyond any cap by then."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with jitter: before retry n, a random pause of at most `longest = min(cap, base * 2**n)` seconds
    and at least `least * longest`; `retries` retries."""

    retries: int = 12
    base: float = 0.005
    cap: float = 1.0
    least: float = 0.0

    def pause(self, attempt: int) -> float:
        """Seconds to sleep before retry `attempt`, from 0."""
        longest = min(self.cap, self.base * 2 ** min(attempt, _MOST_DOUBLED))
        return random.uniform(self.least * longest, longest)  # noqa: S311 - no secret


def steady(seconds: float) -> Backoff:
    """The same pause before each retry."""
    return Backoff(base=seconds, cap=seconds, least=1.0)


class Retries:
    """The pauses of one request that is retried, or of one state that is awaited, until `seconds` are over."""

    def __init__(self, backoff: Backoff, seconds: float) -> None:
        self._backoff = backoff
        self._ends = time.monotonic() + seconds
        self._attempt = 0

    def pause(self) -> bool:
        """Sleep before the next retry; False, at once, where the time is over."""
        if time.monotonic() > self._ends:
            return False
        time.sleep(self._backoff.pause(self._attempt))
        self._attempt += 1
        return True
