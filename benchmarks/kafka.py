"""The flow from Kafka beside a bare consumer of the same topics: events a second, and from published to readable."""

from __future__ import annotations

import re
import threading
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from app import wiring
from app.servers.kafka import kafka
from app.settings import load
from benchmarks.flow_run import run_until_done
from benchmarks.latency import POLL_SECONDS, marked, percentiles, until
from benchmarks.product import RunningFlow, installed
from benchmarks.workload import SOURCES, clear, endless, events, renamed
from merge.store import ProfileStore
from sinks.kafka_publisher import KafkaPublisher

PARTITIONS = 2
EVENTS_PER_SECOND = 1000
GROUPS_PER_SECOND = 20
LIVE = "live"
"""What the name of the topic begins with that latency is measured on."""


def measure(folder: Path, shops: int, seconds: float) -> dict[str, Any]:
    """Events a second of `shops` and latency at 1,000 events a second, each beside a bare consumer's."""
    clear(folder)
    folder.mkdir(parents=True)
    with kafka(folder / "broker") as broker, installed(folder / "replay") as (config, _):
        servers = broker.bootstrap_servers
        _create(servers, *SOURCES, *(LIVE + source for source in SOURCES))
        _read_topics(config, servers, "")
        published, publishing = _publish(servers, shops)
        bare = _bare_seconds(servers, published)
        run = run_until_done(config, published)
        rates = {
            "events": published,
            "published_events_per_second": round(published / publishing),
            "bare_consumer_events_per_second": round(published / bare),
            "streaming_events_per_second": round(published / run.streaming_seconds),
            "cpu_us_an_event": run.cpu_us_an_event,
        }
        latency = _latency(config, servers, seconds)
    return {**rates, **latency, "measured_at": time.strftime("%Y-%m-%d %H:%M:%S")}


def _read_topics(config: Path, servers: str, prefix: str) -> None:
    """Have the configuration's sources read topics."""
    text = re.sub(r'path = "inbox/(\w+)"', rf'kind = "kafka"\ntopics = ["{prefix}\1"]', config.read_text())
    text = re.sub(r'topics = \["(?:live)?(\w+)"\]', rf'topics = ["{prefix}\1"]', text)
    if "[kafka]" not in text:
        text = text.replace("[flow]\n", f'[kafka]\nbootstrap_servers = "{servers}"\n\n[flow]\n')
    config.write_text(text)


def _create(servers: str, *topics: str) -> None:
    client = AdminClient({"bootstrap.servers": servers})
    for done in client.create_topics([NewTopic(topic, PARTITIONS, 1) for topic in topics]).values():
        done.result(60)


def _publish(servers: str, shops: int) -> tuple[int, float]:
    """Publish the retail data of many shops; gives how many events, and the seconds it took."""
    months = {source: events(source) for source in SOURCES}
    total, seconds = 0, 0.0
    with KafkaPublisher(servers, {}) as publisher:
        for shop in range(1, shops + 1):
            for source, month in months.items():
                records = [(None, renamed(source, event, shop).rstrip()) for event in month]
                started = time.perf_counter()
                total += publisher.publish(source, records)
                seconds += time.perf_counter() - started
    return total, seconds


def _bare_seconds(servers: str, count: int) -> float:
    """How long librdkafka takes to hand all records to Python, which looks at none."""
    with closing(_consumer(servers, *SOURCES)) as consumer:
        started = time.perf_counter()
        while count > 0:
            count -= sum(message.error() is None for message in consumer.consume(10_000, 1.0))
        return time.perf_counter() - started


def _consumer(servers: str, *topics: str) -> Consumer:
    options: dict[str, str | int | float | bool] = {
        "bootstrap.servers": servers,
        "group.id": "bare",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 10,
    }
    consumer = Consumer(options)
    # From the first record: no group's offsets are asked for.
    first = [TopicPartition(topic, each, OFFSET_BEGINNING) for topic in topics for each in range(PARTITIONS)]
    consumer.assign(first)
    return consumer


class _Publisher(threading.Thread):
    """Publishes events of the web site at a steady rate; remembers when each group's last event, about a person of its
    own, was handed to the client."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        self._halt = threading.Event()
        self.published: dict[str, float] = {}

    def run(self) -> None:
        stream = endless("segment")
        due = time.monotonic()
        while not self._halt.is_set():
            name = f"probe{len(self.published)}"
            for _ in range(EVENTS_PER_SECOND // GROUPS_PER_SECOND - 1):
                self._producer.produce(f"{LIVE}segment", next(stream).rstrip())
            self._producer.produce(f"{LIVE}segment", marked(name).rstrip(), name)
            self.published[name] = time.monotonic()
            self._producer.poll(0)
            due += 1 / GROUPS_PER_SECOND
            time.sleep(max(0.0, due - time.monotonic()))

    def stop(self) -> None:
        self._halt.set()
        self.join()
        self._producer.flush(10)


class _BareReader(threading.Thread):
    """Notes when a bare consumer has each probe."""

    def __init__(self, servers: str) -> None:
        super().__init__(daemon=True)
        self._servers = servers
        self._halt = threading.Event()
        self.found: dict[str, float] = {}

    def run(self) -> None:
        with closing(_consumer(self._servers, f"{LIVE}segment")) as consumer:
            while not self._halt.is_set():
                for message in consumer.consume(1000, 0.005):
                    if key := message.key():
                        self.found[bytes(key).decode()] = time.monotonic()

    def stop(self) -> None:
        self._halt.set()
        self.join()


def _latency(config: Path, servers: str, seconds: float) -> dict[str, Any]:
    _read_topics(config, servers, LIVE)
    # Another flow: this one begins with other topics.
    config.write_text(config.read_text().replace('name = "shop"', 'name = "live"'))
    settings = load(config)
    publisher, reader = _Publisher(servers), _BareReader(servers)
    flow = RunningFlow(config)
    try:
        with KafkaPublisher(servers, {}) as first:
            first.publish(f"{LIVE}segment", [(None, marked("warm-up").rstrip())])
        until(lambda: flow.events() > 0, 120)
        reader.start()
        publisher.start()
        with wiring.opened(settings) as resources:
            readable = _watched(publisher, resources.store, seconds)
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


def _watched(publisher: _Publisher, store: ProfileStore, seconds: float) -> dict[str, float]:
    """How long each probe took from published to readable, after a warm-up."""
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
