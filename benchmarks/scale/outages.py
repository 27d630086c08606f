"""A metadata service or an index that is slow, fails or is away, beside the same flow in good health: how soon what is
published can be read, and how much is done."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.latency import FILES_PER_SECOND, POLL_SECONDS, marked, percentiles, until
from benchmarks.product import RunningFlow, installed
from benchmarks.scale.interference import Mood, Proxy
from benchmarks.workload import clear, endless
from idgraph.app import wiring
from idgraph.app.publish import publish_lines
from idgraph.app.settings.document import Settings
from idgraph.files import file_lock
from idgraph.model.store import ProfileStore

RATE = 1000
"""Events a second, unless another rate is asked for."""
SECONDS = 20.0
SETTLE_SECONDS = 5.0
WARM_UP_SECONDS = 15.0


def measure(folder: Path, rate: int = RATE) -> dict[str, Any]:
    """By condition, each held for some seconds under 1,000 events a second of which each fiftieth has an attribute
    that nobody declared: seconds from published to readable, and events done a second."""
    clear(folder)
    with installed(folder) as (config, settings), Proxy(settings.metadata.url).serving() as proxy:
        flow = RunningFlow(config, IDGRAPH_METADATA__URL=proxy.url)
        publisher = _Publisher(settings, rate)
        try:
            publish_lines(settings.file_source("segment"), [marked("warm-up")])
            until(lambda: flow.events() > 0, 180)
            publisher.start()
            with wiring.opened(settings) as tools:
                watch = _Watch(publisher, tools.store, flow)
                watch.held(WARM_UP_SECONDS)
                figures = {"healthy": watch.held(SECONDS)}
                for mood in (Mood.SLOW, Mood.REFUSING, Mood.AWAY):
                    with _mood(proxy, mood):
                        figures[f"metadata service: {mood}"] = watch.held(SECONDS)
                    watch.held(SETTLE_SECONDS)
                with file_lock(settings.directory / "index" / "lock"):
                    figures["index: locked"] = watch.held(SECONDS)
                started = time.monotonic()
                until(lambda: not tools.store.outbox(1), 120)
                figures["index: until the outbox is empty"] = {
                    "seconds": round(time.monotonic() - started, 1)
                }
                figures["healthy again"] = watch.held(SECONDS)
        finally:
            publisher.stop()
            flow.stop()
    return figures


@contextmanager
def _mood(proxy: Proxy, mood: Mood) -> Iterator[None]:
    proxy.mood = mood
    try:
        yield
    finally:
        proxy.mood = Mood.HEALTHY


class _Publisher(threading.Thread):
    """Publishes small files at a steady rate, the last event of each about a person of its own and with an attribute
    of its own."""

    def __init__(self, settings: Settings, rate: int) -> None:
        super().__init__(daemon=True)
        self._rate = rate
        self._source = settings.file_source("segment")
        self._halt = threading.Event()
        self.published: dict[str, float] = {}

    def run(self) -> None:
        stream = endless("segment")
        due = time.monotonic()
        while not self._halt.is_set():
            number = len(self.published)
            lines = [next(stream) for _ in range(self._rate // FILES_PER_SECOND - 1)]
            lines.append(marked(f"probe{number}", query={f"found{number}": "once"}))
            publish_lines(self._source, lines)
            self.published[f"user_id:probe{number}"] = time.monotonic()
            due += 1 / FILES_PER_SECOND
            time.sleep(max(0.0, due - time.monotonic()))

    def stop(self) -> None:
        self._halt.set()
        if self.is_alive():
            self.join()


class _Watch:
    """Polls the store for the probes of a while."""

    def __init__(self, publisher: _Publisher, store: ProfileStore, flow: RunningFlow) -> None:
        self._publisher = publisher
        self._store = store
        self._flow = flow

    def held(self, seconds: float) -> dict[str, Any]:
        """Latency of what is published in the seconds to come, each waited for while the condition lasts; one that
        was not readable at the end counts with the time that it has waited by then."""
        self._flow.check()
        begin, done = time.monotonic(), self._flow.events()
        known = set(self._publisher.published)
        found: dict[str, float] = {}
        while time.monotonic() < begin + seconds:
            waiting = [name for name in list(self._publisher.published) if name not in known]
            for name in self._store.read(waiting[:500]):
                found[name] = time.monotonic()
                known.add(name)
            time.sleep(POLL_SECONDS)
        end = time.monotonic()
        published = {name: at for name, at in self._publisher.published.items() if at >= begin}
        waits = [found.get(name, end) - at for name, at in published.items() if at <= end - 1]
        return {
            **percentiles(waits),
            "unread_after_a_second": sum(
                at < end - 1 and name not in found for name, at in published.items()
            ),
            "events_a_second": round((self._flow.events() - done) / (end - begin)),
        }
