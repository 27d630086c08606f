"""From published to readable, from new attribute to catalogue and search, from spec edit to effect.

The reader polls the embedded store and index as a service would; what is measured includes its polling.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.product import RunningFlow, installed
from benchmarks.workload import EXAMPLE, clear, endless
from idgraph.app import metadata_access, wiring
from idgraph.app.publish import publish_lines
from idgraph.app.settings.document import Settings
from idgraph.model import canonical
from idgraph.model.queries import Query, Term
from idgraph.model.specs import SpecDefinition
from idgraph.model.store import ProfileStore
from merge.fragments import FragmentState

POLL_SECONDS = 0.004
FILES_PER_SECOND = 20


class Publisher(threading.Thread):
    """Publishes events of the web site at a steady rate, in small files; remembers when each file's last
    event, about a person of its own, was published."""

    def __init__(self, settings: Settings, events_per_second: int) -> None:
        super().__init__(daemon=True)
        self._source = settings.file_source("segment")
        self._per_file = events_per_second // FILES_PER_SECOND
        self._halt = threading.Event()
        self.published: dict[str, float] = {}
        self.count = 0

    def run(self) -> None:
        stream = endless("segment")
        due = time.monotonic()
        while not self._halt.is_set():
            number = len(self.published)
            lines = [next(stream) for _ in range(self._per_file - 1)]
            lines.append(marked(f"probe{number}"))
            publish_lines(self._source, lines)
            self.published[f"user_id:probe{number}"] = time.monotonic()
            self.count += len(lines)
            due += 1 / FILES_PER_SECOND
            time.sleep(max(0.0, due - time.monotonic()))

    def stop(self) -> None:
        self._halt.set()
        self.join()


def marked(user: str, **properties: Any) -> bytes:
    """One event of the web site about a person of its own."""
    now = time.time_ns() // 1_000_000
    moment = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now // 1000)) + f".{now % 1000:03d}Z"
    return (
        canonical.encode(
            {
                "type": "track",
                "event": "Search",
                "userId": user,
                "anonymousId": f"anonymous-{user}",
                "messageId": f"message-{user}-{now}",
                "timestamp": moment,
                "platform": "web",
                "properties": {"query": user, **properties},
            }
        )
        + b"\n"
    )


def measure(folder: Path, seconds: float) -> dict[str, Any]:
    """All latencies at 1,000 events a second, after a warm-up."""
    clear(folder)
    with installed(folder) as (config, settings):
        flow = RunningFlow(config)
        publisher = Publisher(settings, 1000)
        try:
            publish_lines(settings.file_source("segment"), [marked("warm-up")])
            until(lambda: flow.events() > 0, 120)
            publisher.start()
            with wiring.opened(settings) as resources:
                readable = _watch_probes(publisher, resources.store.read, warm_up=10, seconds=seconds)
                searchable_person = _watch_probes(
                    publisher, resources.index.versions, warm_up=2, seconds=seconds
                )
                catalogue, searchable = _discover(settings, resources.index, rounds=max(5, int(seconds / 2)))
                activation = _activate(settings, resources.store, rounds=max(5, int(seconds / 4)))
        finally:
            publisher.stop()
            flow.stop()
        sizes = [batch["seconds"] for _, batch in flow.batches if batch["events"]]
        return {
            "events_per_second": 1000,
            "micro_batch_seconds_p50": round(statistics.median(sizes), 3),
            "published_to_readable": _summary(readable, bar=0.6, goal=0.3),
            "published_to_searchable": _summary(searchable_person, bar=2.0, goal=0.5),
            "new_attribute_to_catalogue": _summary(catalogue, bar=2.0, goal=0.5),
            "new_attribute_to_searchable": _summary(searchable, bar=2.0, goal=0.5),
            "spec_activated_to_first_event": _summary(activation, bar=2.0, goal=0.5),
        }


def _watch_probes(
    publisher: Publisher, find: Callable[[list[str]], Iterable[str]], warm_up: float, seconds: float
) -> list[float]:
    """The times from publication until `find` finds persons in store or index."""
    found: dict[str, float] = {}
    end = time.monotonic() + warm_up + seconds
    begin = time.monotonic() + warm_up
    while True:
        waiting = [name for name in list(publisher.published) if name not in found]
        if time.monotonic() >= end and not any(publisher.published[name] < end for name in waiting):
            break
        for name in find(waiting[:200]):
            found[name] = time.monotonic()
        time.sleep(POLL_SECONDS)
        if time.monotonic() > end + 60:
            raise TimeoutError("events were not readable a minute after they had been published")
    return [
        found[name] - at for name, at in publisher.published.items() if name in found and begin <= at <= end
    ]


def _discover(settings: Settings, index: Any, rounds: int) -> tuple[list[float], list[float]]:
    catalogue, searchable = [], []
    with closing(metadata_access.metadata_client(settings)) as client:
        for number in range(rounds):
            name = f"invented{number}x{time.time_ns()}"
            path = f"activity.search.query.{name}"
            publish_lines(
                settings.file_source("segment"), [marked(f"finder{number}", query={name: "surprise"})]
            )
            started = time.monotonic()
            query = Query((Term(path, "surprise"),))
            seen: dict[str, float] = {}
            while len(seen) < 2 and time.monotonic() - started < 60:
                if "catalogue" not in seen and client.get_attribute(path) is not None:
                    seen["catalogue"] = time.monotonic() - started
                if "search" not in seen and index.count(query):
                    seen["search"] = time.monotonic() - started
                time.sleep(POLL_SECONDS)
            catalogue.append(seen["catalogue"])
            searchable.append(seen["search"])
    return catalogue, searchable


def _activate(settings: Settings, store: ProfileStore, rounds: int) -> list[float]:
    definition = SpecDefinition.model_validate_json((EXAMPLE / "specs" / "segment.json").read_bytes())
    waits = []
    with closing(metadata_access.metadata_client(settings)) as client:
        for number in range(rounds):
            edited = definition.model_copy(update={"description": f"edit {number} {time.time_ns()}"})
            version = client.put_spec(edited, "benchmark").latest_version
            started = time.monotonic()
            seen = False
            while not seen and time.monotonic() - started < 60:
                user = f"editor{number}t{time.time_ns()}"
                publish_lines(settings.file_source("segment"), [marked(user)])
                name = f"user_id:{user}"
                until(lambda name=name: bool(store.read([name])), 60)  # type: ignore[misc]
                state = FragmentState.decode(store.read([name])[name].state)
                seen = any(register.spec.version == version for register in state.registers.values())
            waits.append(time.monotonic() - started)
    return waits


def until(condition: Callable[[], bool], seconds: float) -> None:
    """Wait for it; raises TimeoutError."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("the flow did not come so far in time")
        time.sleep(POLL_SECONDS)


def _summary(seconds: list[float], bar: float, goal: float) -> dict[str, float]:
    """`bar` and `goal` are the design's, for p99."""
    return {**percentiles(seconds), "first_bar": bar, "goal": goal}


def percentiles(seconds: list[float]) -> dict[str, float]:
    """With fewer than 100 samples p99 is the largest."""
    ordered = sorted(seconds)
    return {
        "n": len(ordered),
        "p50": round(statistics.median(ordered), 3),
        "p99": round(ordered[min(len(ordered) - 1, int(len(ordered) * 0.99))], 3),
        "max": round(ordered[-1], 3),
    }
