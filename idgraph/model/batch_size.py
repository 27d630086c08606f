"""The number of fragments per commit: as many as the store takes in good time."""

from __future__ import annotations

SLOW_SECONDS = 2.0
"""A slower commit is too large: others wait for it, and its failure repeats much work."""
_LEAST_FOR_SLOWNESS = 100
"""A smaller commit is slow for other reasons."""


MOST_BYTES = 16 << 20
"""Stored states per commit. Decoded, joined and as documents they take some 25 times as much memory."""


UNWEIGHED = 50
"""Fragments of the first commit, whose size is unknown: up to a megabyte each. A worker that ran out of memory starts
with the same ones again."""


class BatchSize:
    """The size is halved after a failing or slow commit, grows by a quarter after a quick one, and is bounded by the
    fragments' bytes. It starts small and doubles as fragments are weighed. `present` is the current size, at most
    `most`. Not safe for several threads."""

    def __init__(self, most: int, slow_seconds: float = SLOW_SECONDS) -> None:
        self.most = most
        self._in_time = self._light = most
        self._tried = UNWEIGHED
        self._mean = 0.0
        self._slow_seconds = slow_seconds

    @property
    def present(self) -> int:
        return min(self._in_time, self._light, self._tried)

    def took(self, count: int, seconds: float, outages: int = 0) -> None:
        """Record a commit: its fragments, its duration, and the outages of the store during it."""
        if outages:
            self._in_time = max(1, self._in_time >> min(outages, self.most.bit_length()))
        elif seconds > self._slow_seconds:
            # At the same speed, half the size takes half the time.
            halved = max(_LEAST_FOR_SLOWNESS, min(self.present, count) // 2)
            self._in_time = min(self._in_time, halved)
        elif seconds < self._slow_seconds / 2 and count >= self.present:
            self._in_time = min(self.most, self._in_time + max(1, self._in_time // 4))

    def weighed(self, count: int, stored: int) -> None:
        """Record that `count` fragments have `stored` bytes together."""
        self._tried = max(self._tried, 2 * count)
        mean = stored / count
        # The mean of light fragments does not predict heavy ones.
        self._mean = max(mean, (self._mean + mean) / 2)
        self._light = max(1, min(self.most, int(MOST_BYTES / self._mean))) if self._mean else self.most
