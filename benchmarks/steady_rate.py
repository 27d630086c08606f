"""A steady rate of events through Kafka: from published to readable in the store and to searchable in the index, and
whether the flow keeps up with it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.latency import percentiles, until
from benchmarks.product import RunningFlow
from benchmarks.topics import SteadyPublisher
from idgraph.model.queries import Prefix, Query
from ingestion.spark.workers import WorkerResources

PROBE_EVERY = 5
"""Groups: four probes a second."""
POLL_SECONDS = 0.05
READ_AT_ONCE = 5
"""The oldest ones, and not often: DynamoDB Local lets who reads go before who writes, so a reader that asks for many all
the time stops the flow."""
FOUND_AT_ONCE = 10_000
KEEPS_UP_SECONDS = 3.0
"""A flow that keeps up is done with all so soon after the last was published: a micro-batch or two."""
DRAIN_SECONDS = 900.0
PATH = "activity.search.query"
"""The path of a probe's name in a profile."""


class SteadyRate:
    """Publishes for a while, watches, and waits until all is done."""

    def __init__(self, servers: str, flow: RunningFlow, resources: WorkerResources) -> None:
        self._servers = servers
        self._flow = flow
        self._resources = resources
        self.lines: list[bytes] = []
        """All that was published."""

    def run(self, events_per_second: int, seconds: float, first_shop: int) -> dict[str, Any]:
        """Latencies in seconds of the whole time, the beginning included: the flow is warm by the backlog."""
        probe = f"probe{events_per_second}x"
        publisher = SteadyPublisher(
            self._servers, "segment", events_per_second, PROBE_EVERY, probe, first_shop
        )
        readable = _Watch(publisher, self._read)
        searchable = _Watch(publisher, lambda _: self._search(probe))
        before = self._flow.events()
        publisher.start()
        began = time.monotonic()
        readable.start()
        searchable.start()
        try:
            time.sleep(seconds)
        finally:
            publisher.stop()
            self.lines += publisher.lines
        ended = time.monotonic()
        taken = self._flow.events() - before
        try:
            until(
                lambda: self._flow.events() - before >= len(publisher.lines) or self._ended(), DRAIN_SECONDS
            )
            drained = time.monotonic() - ended
            until(lambda: readable.is_done() and searchable.is_done(), DRAIN_SECONDS)
        finally:
            readable.stop()
            searchable.stop()
        return {
            "keeps_up": drained <= KEEPS_UP_SECONDS,
            "published_events_per_second": round(len(publisher.lines) / (ended - began)),
            "done_when_the_last_was_published": taken,
            "of": len(publisher.lines),
            "all_done_seconds_later": round(drained, 1),
            "done_events_per_second": round(len(publisher.lines) / (ended - began + drained)),
            "published_to_readable": readable.latencies(),
            "published_to_searchable": searchable.latencies(),
        }

    def _read(self, waiting: list[str]) -> Iterable[str]:
        return self._resources.store.read(waiting[:READ_AT_ONCE])

    def _search(self, probe: str) -> Iterable[str]:
        return self._resources.index.search(Query((Prefix(PATH, probe),)), FOUND_AT_ONCE).ids

    def _ended(self) -> bool:
        self._flow.check()
        return False


class _Watch(threading.Thread):
    """Notes when each probe was first seen by one way to look, which is given what was not seen yet."""

    def __init__(self, publisher: SteadyPublisher, look: Callable[[list[str]], Iterable[str]]) -> None:
        super().__init__(daemon=True)
        self._publisher = publisher
        self._look = look
        self._halt = threading.Event()
        self._seen: dict[str, float] = {}
        self._failed: Exception | None = None

    def run(self) -> None:
        try:
            while not self._halt.wait(POLL_SECONDS):
                names = [f"user_id:{name}" for name in list(self._publisher.published)]
                if waiting := [name for name in names if name not in self._seen]:
                    for name in self._look(waiting):
                        self._seen.setdefault(name, time.monotonic())
        except Exception as error:
            self._failed = error

    def is_done(self) -> bool:
        """Whether all that was published was seen. Raises what ended the watching."""
        if self._failed is not None:
            raise self._failed
        return len(self._seen) >= len(self._publisher.published)

    def stop(self) -> None:
        self._halt.set()
        self.join()

    def latencies(self) -> dict[str, float]:
        published = self._publisher.published
        return percentiles([self._seen[f"user_id:{name}"] - at for name, at in published.items()])
