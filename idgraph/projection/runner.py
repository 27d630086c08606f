"""The projection beside a flow: a thread that sweeps the outbox whenever a micro-batch has committed."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from idgraph.model.backoff import Backoff
from idgraph.model.errors import ProfileIndexError
from idgraph.projection.parts import Projected
from idgraph.repeating import Outage, Repeating, message_of

log = logging.getLogger(__name__)

POLL_SECONDS = 1.0
"""Between looks at the outbox while nothing wakes it: for entries that a crash or another process left."""
RETRY = Backoff(base=1.0, cap=30.0, least=0.5)
"""After the index or the store was away."""
MOST_FAILURES = 3
"""So many sweeps in a row that failed are an outage, which whoever waits for the end does not wait for."""
FINISH_SECONDS = 0.1
"""Between looks whether all is projected."""
END_SECONDS = 60.0
"""The longest wait at the end of a flow for the rest of the outbox."""
SWEEP_SECONDS = 5.0
"""A sweep that takes longer is broken off and begun again: between two the end of the flow is noticed."""
TOGETHER_SECONDS = 30.0
IDLE_SECONDS = 0.5
"""Micro-batches that follow each other within `IDLE_SECONDS` share one hold of the index. It ends after `TOGETHER_SECONDS`,
or as soon as another process waits for the index."""
MANY = 10_000
REST_SECONDS = 2.0
"""The rest after a sweep of so many fragments, which a flow at its limit leaves. Few large commits cost the
index a third of many small ones, and fragments that change again meanwhile are projected once."""
_COUNTED = 10_000


class Sweeping(Protocol):
    """A `Projection`, here or in another process."""

    def many(self) -> AbstractContextManager[Callable[[], bool]]: ...
    def sweep(self, seconds: float) -> Projected: ...
    def waiting(self, limit: int) -> int: ...


class ProjectionRunner:
    """Runs a projection in a thread of its own: a slow or absent index delays nobody else. Use as a context manager."""

    def __init__(self, projection: Sweeping, end_seconds: float = END_SECONDS) -> None:
        self._projection = projection
        self._end_seconds = end_seconds
        self._outage = Outage("the projection")
        self._wake = threading.Event()
        self._lock = threading.Lock()
        self._woken: float | None = None
        self._behind: float | None = None
        self._is_busy = False
        self._failures = 0
        self._failure = ""
        self._repeating = Repeating("projection", self._step, self._report, backoff=RETRY, last=self._end)

    def __enter__(self) -> ProjectionRunner:
        self._repeating.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Project the rest of the outbox, up to a bound of time, and log that entries remain."""
        self._repeating.stop.set()
        self._wake.set()
        if not self._repeating.close(SWEEP_SECONDS + self._end_seconds):
            log.warning("the index takes long; the next run projects the rest of the outbox")

    def wake(self) -> None:
        """Report a commit. For any thread; returns at once."""
        with self._lock:
            self._woken = self._woken or time.monotonic()
        self._wake.set()

    def finish(self, stop: threading.Event) -> None:
        """Wait until all that is committed is projected, however long it takes, or until `stop` is set. Raises
        ProfileIndexError when index or store are away."""
        self.wake()
        while self.lag_seconds() and not stop.wait(FINISH_SECONDS):
            if self._failures >= MOST_FAILURES:
                raise ProfileIndexError(
                    f"all is stored and readable, and not all is searchable: {self._failure}. The rest waits in the "
                    "outbox, and the next run projects it"
                )

    def lag_seconds(self) -> float:
        """The time for which a commit has waited for its projection; 0 while none waits. For any thread."""
        with self._lock:
            since = self._behind or self._woken
        return 0.0 if since is None else time.monotonic() - since

    def _step(self) -> float:
        """Sweep, and at each micro-batch again, until another waits for the index."""
        self._wake.wait(POLL_SECONDS)
        ends = time.monotonic() + TOGETHER_SECONDS
        with self._projection.many() as is_wanted:
            while True:
                self._wake.clear()
                self._sweep(SWEEP_SECONDS)
                if (
                    self._is_busy
                    or self._repeating.stop.is_set()
                    or is_wanted()
                    or time.monotonic() > ends
                    or not self._wake.wait(IDLE_SECONDS)
                ):
                    return REST_SECONDS if self._is_busy else 0.0

    def _sweep(self, seconds: float) -> None:
        with self._lock:
            self._behind, self._woken = self._behind or self._woken, None
        swept = self._projection.sweep(seconds)
        self._outage.is_over()
        self._failures = 0
        self._is_busy = swept.is_whole and swept.projected >= MANY
        if swept.is_whole:
            with self._lock:
                self._behind = None
        else:
            self._wake.set()

    def _end(self) -> None:
        try:
            self._sweep(self._end_seconds)
        except Exception as error:
            self._report(error)
        if left := self._projection.waiting(_COUNTED):
            more = " or more" * (left == _COUNTED)
            log.warning("%d profile(s)%s wait for the index; the next run projects them", left, more)

    def _report(self, error: Exception) -> None:
        self._failure = message_of(error)
        self._failures += 1
        self._outage.show_error(error, "commits wait in the outbox")
