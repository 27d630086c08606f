"""What micro-batches made of specs, on its way to the metadata service: added up, and sent now and then.

It may be lost with the process, and counted twice after a crash: nothing is decided by it.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from idgraph.model.errors import IdgraphError
from idgraph.model.spec_use import MOST_USES, SpecUse, SpecUses, joined_fields
from ingestion.stages.outcomes import Uses

log = logging.getLogger(__name__)

SECONDS = 10.0


class SpecUsage:
    """Sends in a thread of its own, each `interval` seconds and at the end. Use as a context manager."""

    def __init__(
        self, updates: SpecUses, interval: float = SECONDS, clock: Callable[[], float] = time.time
    ) -> None:
        self._updates = updates
        self._interval = interval
        self._clock = clock
        self._waiting: dict[tuple[str, int, str], SpecUse] = {}
        self._lock = threading.Lock()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="spec-usage", daemon=True)

    def __enter__(self) -> SpecUsage:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._thread.join(timeout=30)

    def add(self, uses: Uses) -> None:
        """A micro-batch was done; does not wait for the service."""
        now = int(self._clock() * 1000)
        for each in uses.found.values():
            self._keep(
                SpecUse(
                    spec=each.spec or None,
                    version=each.version,
                    source=each.source,
                    events=round(each.events),
                    errors=each.errors,
                    last_used=now,
                    fields=each.fields,
                )
            )

    def _keep(self, use: SpecUse) -> None:
        key = use.spec or "", use.version, use.source
        with self._lock:
            known = self._waiting.get(key)
            if known is None and len(self._waiting) >= MOST_USES:
                return
            self._waiting[key] = use if known is None else _joined(known, use)

    def _run(self) -> None:
        while not self._closing.wait(self._interval):
            self._send()
        self._send()

    def _send(self) -> None:
        with self._lock:
            some, self._waiting = list(self._waiting.values()), {}
        try:
            if some:
                self._updates.send_uses(some)
        except IdgraphError as error:
            log.debug("the use of specs waits for the metadata service: %s", error)
            for each in some:
                self._keep(each)


def _joined(one: SpecUse, other: SpecUse) -> SpecUse:
    fields = joined_fields(one.fields, other.fields)
    return other.model_copy(
        update={
            "events": one.events + other.events,
            "errors": one.errors + other.errors,
            "last_used": max(one.last_used, other.last_used),
            "fields": fields,
        }
    )
