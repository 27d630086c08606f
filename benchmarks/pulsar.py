"""The flow from Pulsar beside a bare reader of the same topics and the same flow from files: events a second, CPU per event."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

from pulsar import CompressionType, MessageId

from benchmarks.flow_run import run_until_done
from benchmarks.kafka import flowing, replayed
from benchmarks.product import installed
from benchmarks.workload import SOURCES, clear, write_inbox
from idgraph.app.settings.document import load
from tests.installation import profiles_by
from tests.servers.pulsar import Pulsar, running_pulsar

PARTITIONS = 3


def measure(folder: Path, shops: int) -> dict[str, Any]:
    """Events a second and CPU per event of `shops`, from three partitions a topic, in batches compressed by LZ4."""
    clear(folder)
    folder.mkdir(parents=True)
    with installed(folder / "files") as (config, _):
        files = run_until_done(config, write_inbox(folder / "files" / "inbox", shops))
        expected, keyring = profiles_by(config), load(config).keyring_file().read_bytes()
    with running_pulsar(folder / "server") as server, installed(folder / "replay") as (config, _):
        server.create(*SOURCES, partitions=PARTITIONS)
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
        return {
            "events": published,
            "bare_reader_events_per_second": round(published / wall),
            "bare_reader_cpu_us_an_event": round(cpu / published * 1e6, 1),
            "streaming_events_per_second": round(published / run.streaming_seconds),
            "cpu_us_an_event": run.cpu_us_an_event,
            "cpu_us_an_event_from_files": files.cpu_us_an_event,
            "share_of_files": round(flowing(files) / flowing(run), 2),
            "profiles_as_from_files": profiles_by(config) == expected,
            "measured_at": time.strftime("%Y-%m-%d %H:%M:%S"),
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
