"""The use of specs by micro-batches, on its way to the metadata service: added up, and sent now and then.

It may be lost with the process, and counted twice after a crash: nothing is decided by it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from idgraph.model.backoff import steady
from idgraph.model.errors import IdgraphError
from idgraph.model.spec_use import MOST_USES, SpecUse, SpecUses
from idgraph.repeating import Repeating, message_of
from ingestion.stages.outcomes import Uses

log = logging.getLogger(__name__)

SECONDS = 10.0


class SpecUsage:
    """Sends in a thread of its own, each `interval` seconds and at the end. Use as a context manager."""

    def __init__(
        self, updates: SpecUses, interval: float = SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self._updates = updates
        self._clock = clock
        self._waiting = Uses()
        self._last_used = 0
        self._lock = threading.Lock()
        self._repeating = Repeating(
            "spec-usage", self._send, self._report, pause=interval, backoff=steady(interval), last=self._send
        )

    def __enter__(self) -> SpecUsage:
        self._repeating.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._repeating.close(30)

    def add(self, uses: Uses) -> None:
        """A micro-batch was done; does not wait for the service."""
        with self._lock:
            self._waiting.add(uses)
            self._last_used = int(self._clock() * 1000)

    def _send(self) -> None:
        with self._lock:
            some, self._waiting = self._waiting, Uses()
        uses = [
            SpecUse(
                spec=each.spec or None,
                version=each.version,
                source=each.source,
                events=round(each.events),
                errors=each.errors,
                last_used=self._last_used,
                fields=each.fields,
            )
            for each in some.found.values()
        ]
        try:
            if uses:
                self._updates.send_uses(uses[:MOST_USES])
        except IdgraphError:
            with self._lock:
                self._waiting.add(some)
            raise

    def _report(self, error: Exception) -> None:
        level = logging.DEBUG if isinstance(error, IdgraphError) else logging.ERROR
        log.log(level, "the use of specs waits for the metadata service: %s", message_of(error))
