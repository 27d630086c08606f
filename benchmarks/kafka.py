"""The flow from Kafka beside a bare consumer of the same topics and the same flow from files: events a second, and from published to readable."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.flow_run import FlowRun, run_until_done
from benchmarks.latency import POLL_SECONDS, marked, percentiles, until
from benchmarks.product import RunningFlow, installed
from benchmarks.topics import SteadyPublisher, consumer, consuming_seconds, make_topics, publish_all
from benchmarks.workload import SOURCES, clear, events, renamed, write_inbox
from idgraph.app import wiring
from idgraph.app.settings.document import load
from idgraph.model.store import ProfileStore
from sinks.kafka.publisher import KafkaPublisher
from tests.support.kafka import kafka

PARTITIONS = 2
EVENTS_PER_SECOND = 1000
LIVE = "live"
"""Beginning of the name of the topic that latency is measured on."""


def measure(folder: Path, shops: int, seconds: float, partitions: int = PARTITIONS) -> dict[str, Any]:
    """Events a second of `shops` and latency at 1,000 events a second, each beside a bare consumer's."""
    clear(folder)
    folder.mkdir(parents=True)
    with installed(folder / "files") as (config, _):
        files = run_until_done(config, write_inbox(folder / "files" / "inbox", shops))
    with kafka(folder / "broker") as broker, installed(folder / "replay") as (config, _):
        servers = broker.bootstrap_servers
        make_topics(servers, [*SOURCES, *(LIVE + source for source in SOURCES)], partitions)
        _read_topics(config, servers, "")
        published, publishing = publish_all(servers, replayed(shops))
        bare = consuming_seconds(servers, SOURCES, partitions, published)
        run = run_until_done(config, published)
        rates = {
            "events": published,
            "published_events_per_second": round(published / publishing),
            "bare_consumer_events_per_second": round(published / bare),
            "streaming_events_per_second": round(published / run.streaming_seconds),
            "cpu_us_an_event": run.cpu_us_an_event,
            "cpu_us_an_event_from_files": files.cpu_us_an_event,
            "share_of_files": round(flowing(files) / flowing(run), 2),
        }
        latency = _latency(config, servers, seconds, partitions)
    return {**rates, **latency, "measured_at": time.strftime("%Y-%m-%d %H:%M:%S")}


def flowing(run: FlowRun) -> float:
    """CPU per event of the flow itself, without broker and projection."""
    return sum(used for kind, used in run.cpu_us_an_event.items() if kind != "projection")


def _read_topics(config: Path, servers: str, prefix: str) -> None:
    """Have the configuration's sources read topics."""
    text = re.sub(r'path = "inbox/(\w+)"', rf'kind = "kafka"\ntopics = ["{prefix}\1"]', config.read_text())
    text = re.sub(r'topics = \["(?:live)?(\w+)"\]', rf'topics = ["{prefix}\1"]', text)
    if "[kafka]" not in text:
        text = text.replace("[flow]\n", f'[kafka]\nbootstrap_servers = "{servers}"\n\n[flow]\n')
    config.write_text(text)


def replayed(shops: int) -> Iterator[tuple[str, list[bytes]]]:
    """The retail data of many shops, by source."""
    months = {source: events(source) for source in SOURCES}
    for shop in range(1, shops + 1):
        for source, month in months.items():
            yield source, [renamed(source, event, shop).rstrip() for event in month]


class _BareReader(threading.Thread):
    """Notes when a bare consumer has each probe."""

    def __init__(self, servers: str, partitions: int) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._partitions = partitions
        self._halt = threading.Event()
        self.found: dict[str, float] = {}

    def run(self) -> None:
        with closing(consumer(self._servers, [f"{LIVE}segment"], self._partitions)) as bare:
            while not self._halt.is_set():
                for message in bare.consume(1000, 0.005):
                    if key := message.key():
                        self.found[bytes(key).decode()] = time.monotonic()

    def stop(self) -> None:
        self._halt.set()
        self.join()


def _latency(config: Path, servers: str, seconds: float, partitions: int) -> dict[str, Any]:
    _read_topics(config, servers, LIVE)
    # Another flow: this one begins with other topics.
    config.write_text(config.read_text().replace('name = "shop"', 'name = "live"'))
    settings = load(config)
    publisher = SteadyPublisher(servers, f"{LIVE}segment", EVENTS_PER_SECOND)
    reader = _BareReader(servers, partitions)
    flow = RunningFlow(config)
    try:
        with KafkaPublisher(servers, {}) as first:
            first.publish(f"{LIVE}segment", [(None, marked("warm-up").rstrip())])
        until(lambda: flow.events() > 0, 120)
        reader.start()
        publisher.start()
        with wiring.opened(settings) as resources:
            readable = watched(publisher, resources.store, seconds)
    finally:
        if publisher.is_alive():
            publisher.stop()
            reader.stop()
        flow.stop()
    consumed = [reader.found[name] - publisher.published[name] for name in readable if name in reader.found]
    return {
        "events_per_second": EVENTS_PER_SECOND,
        "published_to_readable": percentiles(list(readable.values())),
        "published_to_bare_consumer": percentiles(consumed),
    }


def watched(publisher: SteadyPublisher, store: ProfileStore, seconds: float) -> dict[str, float]:
    """The time of each probe from published to readable, after a warm-up."""
    begin = time.monotonic() + min(10.0, seconds)
    end = begin + seconds
    found: dict[str, float] = {}
    while time.monotonic() < end + 60:
        watched = {name for name, at in list(publisher.published.items()) if at <= end}
        waiting = [f"user_id:{name}" for name in watched if name not in found]
        if not waiting and time.monotonic() > end:
            break
        for fragment_id in store.read(waiting[:200]):
            found[fragment_id.removeprefix("user_id:")] = time.monotonic()
        time.sleep(POLL_SECONDS)
    else:
        raise TimeoutError("events were not readable a minute after they had been published")
    return {
        name: at - publisher.published[name]
        for name, at in found.items()
        if publisher.published[name] >= begin
    }
