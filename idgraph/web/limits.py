"""Rate limits per caller, by token buckets in the memory of one process."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from ipaddress import ip_network
from typing import NamedTuple

from cachetools import LRUCache

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
        # Others, whatever their number, make the bucket of nobody who calls full.
        self._left: LRUCache[str, tuple[float, float]] = LRUCache(MOST_CALLERS)
        self._lock = threading.Lock()

    def take(self, name: str) -> Turn:
        """One request of this caller."""
        return self._taken(name, 1, least=1)

    def charge(self, name: str, requests: int) -> Turn:
        """So many more, for a request that is under way and costs as much. It may leave a debt, which is waited for: a costly
        request is granted whatever the burst; while there is a debt, none is."""
        return self._taken(name, requests, least=0)

    def _taken(self, name: str, requests: int, least: int) -> Turn:
        now = self._clock()
        with self._lock:
            left, at = self._left.get(name, (float(self._burst), now))
            left = min(float(self._burst), left + (now - at) * self._per_second)
            is_granted = left >= least
            left_now = left - requests * is_granted
            self._left[name] = (left_now, now)
        missing = self._burst - left_now if is_granted else 1 - left
        return Turn(is_granted, self._burst, max(0, int(left_now)), math.ceil(missing / self._per_second))

    def give_back(self, name: str) -> None:
        """One request of this caller did not count."""
        with self._lock:
            if name in self._left:
                left, at = self._left[name]
                self._left[name] = (min(float(self._burst), left + 1), at)

    def forget(self, name: str) -> None:
        """None of this caller did."""
        with self._lock:
            self._left.pop(name, None)


_charging: ContextVar[Callable[[int], None]] = ContextVar("charging")


def charged_by(charge: Callable[[int], None]) -> None:
    """From here on, what the request that this task answers costs is charged so."""
    _charging.set(charge)


def charge(requests: int) -> None:
    """Charge the caller of the request that is being answered as for so many more. Nothing happens outside of requests, and
    where there is no limit. Raises RateError."""
    if requests and (charging := _charging.get(None)) is not None:
        charging(requests)


def address_of(client: tuple[str, int] | None) -> str:
    """The network that a limit by address counts: an IPv4 address, or the network of an IPv6 one, of which somebody
    has 2^64."""
    address = client[0] if client else ""
    if ":" not in address:
        return address
    try:
        return str(ip_network(f"{address.partition('%')[0]}/64", strict=False))
    except ValueError:
        return address
