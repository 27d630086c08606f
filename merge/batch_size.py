"""How many fragments a store is given at once: as many as it takes in good time."""

from __future__ import annotations

SLOW_SECONDS = 2.0
"""A commit that took longer was too large: others wait for it, and much is done again when it fails."""
_LEAST_FOR_SLOWNESS = 100
"""Below this it is not the size that makes a commit slow."""


class BatchSize:
    """Halved when the store failed or was slow, grown back by a quarter while it is quick. `present` is how many may
    be given now, at most `most`. Not safe for several threads."""

    def __init__(self, most: int, slow_seconds: float = SLOW_SECONDS) -> None:
        self.most = most
        self.present = most
        self._slow_seconds = slow_seconds

    def took(self, count: int, seconds: float, outages: int = 0) -> None:
        """A commit of `count` fragments took so long, and the store was away so often meanwhile."""
        if outages:
            self.present = max(1, self.present >> min(outages, self.most.bit_length()))
        elif seconds > self._slow_seconds:
            # As fast as it was, half the size takes half the time.
            halved = max(_LEAST_FOR_SLOWNESS, min(self.present, count) // 2)
            self.present = min(self.present, halved)
        elif seconds < self._slow_seconds / 2 and count >= self.present:
            self.present = min(self.most, self.present + max(1, self.present // 4))
