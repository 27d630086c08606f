"""How many fragments a store is given at once: as many as it takes in good time."""

from __future__ import annotations

SLOW_SECONDS = 2.0
"""A commit that took longer was too large: others wait for it, and much is done again when it fails."""
_LEAST_FOR_SLOWNESS = 100
"""Below this it is not the size that makes a commit slow."""


MOST_BYTES = 16 << 20
"""Of stored states that are given at once: decoded, joined and made documents of they take some 25 times as much memory."""


UNWEIGHED = 50
"""Fragments of the first commit, of which it is not known what they weigh: a store takes up to a megabyte of each, and
a worker that ran out of memory begins again with the same ones."""


class BatchSize:
    """Halved when the store failed or was slow, grown back by a quarter while it is quick, and bounded by what the
    fragments weigh. It begins with a few, and doubles as they are weighed. `present` is how many may be given now, at
    most `most`. Not safe for several threads."""

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
        """A commit of `count` fragments took so long, and the store was away so often meanwhile."""
        if outages:
            self._in_time = max(1, self._in_time >> min(outages, self.most.bit_length()))
        elif seconds > self._slow_seconds:
            # As fast as it was, half the size takes half the time.
            halved = max(_LEAST_FOR_SLOWNESS, min(self.present, count) // 2)
            self._in_time = min(self._in_time, halved)
        elif seconds < self._slow_seconds / 2 and count >= self.present:
            self._in_time = min(self.most, self._in_time + max(1, self._in_time // 4))

    def weighed(self, count: int, stored: int) -> None:
        """So many fragments are so many bytes in the store, together."""
        self._tried = max(self._tried, 2 * count)
        mean = stored / count
        # Heavy ones among the next are not reported by the mean of light ones.
        self._mean = max(mean, (self._mean + mean) / 2)
        self._light = max(1, min(self.most, int(MOST_BYTES / self._mean))) if self._mean else self.most
