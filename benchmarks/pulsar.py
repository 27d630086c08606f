"""The flow from Pulsar beside a bare reader of the same topics, and the same flow from files and from Kafka: events a second, CPU
per event, and from published to readable."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from pulsar import Client, CompressionType, MessageId

from benchmarks.flow_run import run_until_done
from benchmarks.kafka import EVENTS_PER_SECOND, LIVE, flowing, replayed, watched
from benchmarks.kafka import measure as in_topics
from benchmarks.latency import marked, percentiles, until
from benchmarks.product import RunningFlow, installed
from benchmarks.topics import SteadyPublisher
from benchmarks.workload import SOURCES, clear, write_inbox
from idgraph.app import wiring
from idgraph.app.settings.document import load
from tests.installation import profiles_by
from tests.servers.pulsar import Pulsar, running_pulsar

PARTITIONS = 3


def measure(folder: Path, shops: int, seconds: float) -> dict[str, Any]:
    """Events a second and CPU per event of `shops`, from three partitions a topic, in batches compressed by LZ4; then latency."""
    clear(folder)
    folder.mkdir(parents=True)
    with installed(folder / "files") as (config, _):
        files = run_until_done(config, write_inbox(folder / "files" / "inbox", shops))
        expected, keyring = profiles_by(config), load(config).keyring_file().read_bytes()
    with running_pulsar(folder / "server") as server, installed(folder / "replay") as (config, _):
        server.create(*SOURCES, *(LIVE + source for source in SOURCES), partitions=PARTITIONS)
        published = 0
        for source, lines in replayed(shops):
            way = CompressionType.LZ4
            published += len(server.publish(source, lines, batching_enabled=True, compression_type=way))
        wall, cpu = _bare(server, published)
        table = "".join(f"{key} = {json.dumps(value)}\n" for key, value in server.settings.items())
        text = re.sub(r'path = "inbox/(\w+)"', r'kind = "pulsar"\ntopics = ["\1"]', config.read_text())
        config.write_text(text.replace("[flow]\n", f"[pulsar]\n{table}\n[flow]\n"))
        # With other keys the same values are other bytes.
        load(config).keyring_file().write_bytes(keyring)
        run = run_until_done(config, published)
        is_same = profiles_by(config) == expected
        latency = _latency(config, server, seconds)
    in_kafka = in_topics(folder / "kafka", shops, seconds, PARTITIONS)
    return {
        "events": published,
        "bare_reader_events_per_second": round(published / wall),
        "bare_reader_cpu_us_an_event": round(cpu / published * 1e6, 1),
        "streaming_events_per_second": round(published / run.streaming_seconds),
        "cpu_us_an_event": run.cpu_us_an_event,
        "cpu_us_an_event_from_files": files.cpu_us_an_event,
        "share_of_files": round(flowing(files) / flowing(run), 2),
        "profiles_as_from_files": is_same,
        **latency,
        "kafka": in_kafka,
        "measured_at": time.strftime("%Y-%m-%d %H:%M:%S"),
    }


class _Producer:
    """A producer of Pulsar as `SteadyPublisher` uses one."""

    def __init__(self, client: Client, topic: str) -> None:
        self._producer = client.create_producer(topic, batching_enabled=True, batching_max_publish_delay_ms=1)

    def produce(self, _: str, line: bytes, key: str | None) -> None:
        self._producer.send_async(line, lambda *_: None, partition_key=key)

    def poll(self, _: float) -> None: ...

    def flush(self, _: float) -> int:
        self._producer.flush()
        return 0


def _latency(config: Path, server: Pulsar, seconds: float) -> dict[str, Any]:
    """From published to readable at a steady rate, by another flow: it begins with other topics."""
    text = re.sub(r'topics = \["(\w+)"\]', rf'topics = ["{LIVE}\1"]', config.read_text())
    config.write_text(text.replace('name = "shop"', 'name = "live"'))
    with server.client() as client:
        topic = f"{LIVE}segment"
        producer = _Producer(client, topic)
        publisher = SteadyPublisher("", topic, EVENTS_PER_SECOND, producer=producer)
        flow = RunningFlow(config)
        try:
            producer.produce(topic, marked("warm-up").rstrip(), None)
            until(lambda: flow.events() > 0, 120)
            publisher.start()
            with wiring.opened(load(config)) as resources:
                readable = watched(publisher, resources.store, seconds)
        finally:
            if publisher.is_alive():
                publisher.stop()
            flow.stop()
    return {
        "events_per_second": EVENTS_PER_SECOND,
        "published_to_readable": percentiles(list(readable.values())),
    }


def _bare(server: Pulsar, messages: int) -> tuple[float, float]:
    """Seconds, and CPU seconds, in which one reader after another hands so many messages to Python, which looks at none."""
    with server.client() as client:
        started, used = time.perf_counter(), time.process_time()
        for source in SOURCES:
            for partition in range(PARTITIONS):
                name = f"public/default/{source}-partition-{partition}"
                reader = client.create_reader(name, MessageId.earliest, receiver_queue_size=10_000)
                while reader.has_message_available():
                    reader.read_next()
                    messages -= 1
                reader.close()
        assert messages == 0, "all of them"
        return time.perf_counter() - started, time.process_time() - used
