"""Pauses between retries."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter: before retry n, a random pause of at most `min(cap, base * 2**n)` seconds;
    `retries` retries."""

    retries: int = 12
    base: float = 0.005
    cap: float = 1.0

    def pause(self, attempt: int) -> float:
        """Seconds to sleep before retry `attempt`, from 0."""
        return random.uniform(0, min(self.cap, self.base * 2**attempt))  # noqa: S311 - no secret
