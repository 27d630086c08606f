"""The bound of tries to sign in.

A hash of a password costs 19 MiB and some 30 ms, so whoever tries is slowed before anything is hashed: by address,
and by account from this address. Nobody locks an account for others so. Tries at one account from everywhere are
slowed too, but for addresses from which its owner signed in before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import timedelta
from typing import TypeVar

from cachetools import LRUCache

from idgraph.web.limits import RateLimit
from idgraph.web.refusals import RateError

Result = TypeVar("Result")

MOST_TRIES = 5
"""Wrong passwords of one account from one address, at once."""
SLOWED = timedelta(minutes=15)
"""Until as many tries are there again."""
MOST_EVERYWHERE = 50
"""Wrong passwords of one account from all addresses, but those from which its owner signed in."""
MOST_OF_ADDRESS = 30
ADDRESS_SECONDS = 5.0
"""After these, an address tries something once in so many seconds."""
MOST_KNOWN = 10_000
MOST_WAITING = 16
"""Sign-ins that wait for the one that is hashed."""


class Tries:
    """The remaining tries at passwords, in the memory of one process. Safe for several threads."""

    def __init__(self) -> None:
        seconds = SLOWED.total_seconds()
        self._of_addresses = RateLimit(1 / ADDRESS_SECONDS, MOST_OF_ADDRESS)
        self._here = RateLimit(MOST_TRIES / seconds, MOST_TRIES)
        self._everywhere = RateLimit(MOST_EVERYWHERE / seconds, MOST_EVERYWHERE)
        self._known: LRUCache[tuple[str, str], None] = LRUCache(MOST_KNOWN)
        self._thread = ThreadPoolExecutor(1, "sign-in")
        self._waiting = threading.BoundedSemaphore(MOST_WAITING)

    def take_address(self, address: str) -> None:
        """Before anything else is done for a try. Raises RateError."""
        turn = self._of_addresses.take(address)
        if not turn.is_granted:
            raise RateError(
                turn.reset_seconds, f"too many tries from this address; try again in {turn.reset_seconds} s"
            )

    def give_back_address(self, address: str) -> None:
        """It was right."""
        self._of_addresses.give_back(address)

    def take(self, account: str, address: str) -> None:
        """Raises RateError."""
        turn = self._here.take(f"{address} {account}")
        if turn.is_granted and (account, address) not in self._known:
            turn = self._everywhere.take(account)
        if not turn.is_granted:
            raise RateError(
                turn.reset_seconds, f"too many wrong passwords; try again in {turn.reset_seconds} s"
            )

    def succeed(self, account: str, address: str) -> None:
        """A right password is no try."""
        self.give_back_address(address)
        self._here.forget(f"{address} {account}")
        if (account, address) not in self._known:
            self._everywhere.give_back(account)
        self._known[account, address] = None

    def submit(self, work: Callable[[], Result]) -> Future[Result]:
        """Do what costs much in a thread of its own, one after the other. Raises RateError where too much waits."""
        if not self._waiting.acquire(blocking=False):
            raise RateError(1, "too many sign in at this moment; try again")
        found = self._thread.submit(work)
        found.add_done_callback(lambda _: self._waiting.release())
        return found

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
