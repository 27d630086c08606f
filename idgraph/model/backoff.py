"""How long to wait before something that failed is tried again."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Backoff:
    """Exponential backoff with full jitter: before retry n, sleep a random time up to `base * 2**n`,
    at most `cap` seconds. Gives up after `retries`."""

    retries: int = 12
    base: float = 0.005
    cap: float = 1.0

    def pause(self, attempt: int) -> float:
        """Seconds to sleep before retry `attempt`, from 0."""
        return random.uniform(0, min(self.cap, self.base * 2**attempt))  # noqa: S311 - no secret
