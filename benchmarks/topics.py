"""Publishing to topics, at once and at a steady rate, and a bare consumer of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import count
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from benchmarks.latency import marked
from benchmarks.workload import endless
from sinks.kafka.publisher import KafkaPublisher

GROUPS_PER_SECOND = 20


def make_topics(servers: str, topics: Iterable[str], partitions: int) -> None:
    """Make those that are missing."""
    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    known = client.list_topics(timeout=60).topics
    wanted = [NewTopic(topic, partitions, 1) for topic in topics if topic not in known]
    for made in client.create_topics(wanted).values() if wanted else ():
        made.result(60)


def publish_all(servers: str, lines: Iterable[tuple[str, list[bytes]]]) -> tuple[int, float]:
    """Publish lines to topics; gives how many, and the seconds it took."""
    total, seconds = 0, 0.0
    with KafkaPublisher(servers, {}) as publisher:
        for topic, some in lines:
            started = time.perf_counter()
            total += publisher.publish(topic, ((None, line) for line in some))
            seconds += time.perf_counter() - started
    return total, seconds


def consuming_seconds(servers: str, topics: Sequence[str], partitions: int, records: int) -> float:
    """Seconds that librdkafka takes to hand so many records to Python, which looks at none."""
    with closing(consumer(servers, topics, partitions)) as bare:
        started = time.perf_counter()
        while records > 0:
            records -= sum(message.error() is None for message in bare.consume(min(10_000, records), 1.0))
        return time.perf_counter() - started


def consumer(servers: str, topics: Sequence[str], partitions: int) -> Consumer:
    """Read all records from the first one on: no group's offsets are asked for."""
    options: dict[str, str | int | float | bool] = {
        "bootstrap.servers": servers,
        "group.id": "bare",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "fetch.wait.max.ms": 10,
    }
    bare = Consumer(options)
    first = [TopicPartition(topic, each, OFFSET_BEGINNING) for topic in topics for each in range(partitions)]
    bare.assign(first)
    return bare


class SteadyPublisher(threading.Thread):
    """Publishes events of the web site at a steady rate, in groups. The last event of every `probe_every`th group is about
    a person of its own, numbered behind `probe`; remembers when each of those was handed to the client."""

    def __init__(
        self,
        servers: str,
        topic: str,
        events_per_second: int,
        probe_every: int = 1,
        probe: str = "probe",
        first_shop: int = 1,
        producer: Any = None,
    ) -> None:
        """`producer` has the interface of Kafka's."""
        super().__init__(daemon=True)
        self._producer = producer or Producer({"bootstrap.servers": servers, "linger.ms": 0})
        self._topic = topic
        self._group = max(1, events_per_second // GROUPS_PER_SECOND)
        self._pause = self._group / events_per_second
        self._probe, self._probe_every = probe, probe_every
        self._stream = endless("segment", first_shop)
        self._halt = threading.Event()
        self.published: dict[str, float] = {}
        self.lines: list[bytes] = []
        """All that was published."""

    def run(self) -> None:
        due = time.monotonic()
        for group in count():
            if self._halt.is_set():
                break
            has_probe = group % self._probe_every == 0
            for _ in range(self._group - has_probe):
                self._produce(next(self._stream))
            if has_probe:
                name = f"{self._probe}{len(self.published)}"
                self._produce(marked(name), name)
                self.published[name] = time.monotonic()
            self._producer.poll(0)
            due += self._pause
            time.sleep(max(0.0, due - time.monotonic()))

    def stop(self) -> None:
        """Raises RuntimeError when the broker has not confirmed what was given to it."""
        self._halt.set()
        self.join()
        if left := self._producer.flush(10):
            raise RuntimeError(f"{left} records were not published")

    def _produce(self, line: bytes, key: str | None = None) -> None:
        line = line.rstrip()
        self._producer.produce(self._topic, line, key)
        self.lines.append(line)
