"""The cost of discovered attributes, up to a hundred thousand: the metadata service, its snapshot on the way to a
worker, the map stage's look-up, the search for an attribute."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.flow_run import mib
from benchmarks.pipeline import Pipeline, cpu_seconds, without_collector
from benchmarks.product import installed
from benchmarks.scale.growing_store import records
from benchmarks.workload import events
from idgraph.app import metadata_access, wiring
from idgraph.model.attributes import DataType
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.snapshots import MetadataSnapshot, PinnedSnapshot
from idgraph.snapshot_file import SnapshotFile
from ingestion.spark.sent_snapshots import SnapshotSender, packed
from sinks.http.metadata import MetadataClient
from transforms.spec.mapping import CompiledSnapshot

SIZES = (1000, 10_000, 100_000)
AT_ONCE = 5000
EVENTS = 10_000
ROUNDS = 3


def measure(folder: Path) -> dict[str, Any]:
    """By number of attributes. `*_ms` of the service are of the clock, all else is CPU of this process."""
    figures: dict[str, Any] = {}
    with (
        installed(folder) as (_, settings),
        wiring.opened(settings) as tools,
        closing(metadata_access.metadata_client(settings, 60.0)) as client,
        without_collector(),
    ):
        uncapped(client)
        known = 0
        for size in SIZES:
            sending = [
                _send(client, first, min(AT_ONCE, size - first)) for first in range(known, size, AT_ONCE)
            ]
            known = size
            service, snapshot = _service(folder, client, size)
            stages = Pipeline(settings, tools, CompiledSnapshot(snapshot))
            figures[f"{size} attributes"] = {
                "send_5000_ms": round(1e3 * sending[-1]) if size >= AT_ONCE else None,
                **service,
                **_worker(snapshot),
                "map_us_an_event": _mapping(stages),
            }
    return figures


def _mapping(stages: Pipeline) -> float:
    given = list(records("segment", events("segment")[:EVENTS], 1))
    return round(1e6 * cpu_seconds(lambda: stages.map(given), ROUNDS) / EVENTS, 1)


def uncapped(client: MetadataClient) -> None:
    """Without the caps on what one source may add on a day: over them nothing more is discovered, and all would look fast."""
    caps = {"most_new_per_source_and_day": 10_000_000, "most_attributes": 10_000_000}
    client.put_defaults(client.get_defaults().model_copy(update=caps), "benchmark")


def changes(first: int, count: int) -> list[SchemaChange]:
    """Attributes that events had, from a number on."""
    return [
        SchemaChange(
            path=f"found.area{number % 100}.group{number // 100 % 100}.field{number}",
            data_type=DataType.STRING,
            source="segment",
            first_event=f"file:segment/x.jsonl#{number}",
        )
        for number in range(first, first + count)
    ]


def _send(client: MetadataClient, first: int, count: int) -> float:
    started = time.perf_counter()
    refused = client.send(changes(first, count))
    if refused:
        raise RuntimeError(f"{len(refused)} changes were refused")
    return time.perf_counter() - started


def _service(folder: Path, client: MetadataClient, size: int) -> tuple[dict[str, float], MetadataSnapshot]:
    answer = client.catalogue(None, 0)
    assert answer is not None
    fresh = []
    for number in range(ROUNDS):
        started = time.perf_counter()
        _send(client, 10_000_000 + size * 10 + number, 1)
        while (newer := client.catalogue(answer[1], wait=10)) is None:
            pass
        answer = newer
        fresh.append(time.perf_counter() - started)
    found = client.snapshot(None, 0)
    assert found is not None
    pinned = PinnedSnapshot(found.etag, found.snapshot)
    path = f"found.area7.group{size // 100 % 100 // 2}.field"
    return {
        "new_attribute_to_catalogue_ms": round(1e3 * min(fresh)),
        **_followed(folder, pinned),
        "get_ms": _milliseconds(lambda: client.get_attribute(path)),
        "list_page_ms": _milliseconds(lambda: list(islice(client.search_attributes(prefix="found."), 50))),
        "search_rare_ms": _milliseconds(lambda: list(client.search_attributes(f"field{size - 1}"))),
        "search_common_first_ms": _milliseconds(
            lambda: list(islice(client.search_attributes("area7 field"), 50))
        ),
    }, found.snapshot


def _followed(folder: Path, pinned: PinnedSnapshot) -> dict[str, float]:
    """The cost of a snapshot in the driver and in a worker."""
    sender = SnapshotSender(lambda content: SimpleNamespace(value=content, destroy=lambda: None))
    sent = sender.sent(pinned)
    steps: dict[str, Callable[[], object]] = {
        "keep_cpu_ms": lambda: SnapshotFile(folder / "followed.json").keep(pinned),
        "send_cpu_ms": lambda: packed(pinned.snapshot),
        "take_cpu_ms": lambda: sent.compiled(None),
    }
    return {name: round(1e3 * cpu_seconds(step, ROUNDS), 1) for name, step in steps.items()}


def _worker(snapshot: MetadataSnapshot) -> dict[str, float]:
    content = snapshot.model_dump_json().encode()
    return {
        "whole_mib": mib(len(content)),
        "whole_write_cpu_ms": round(1e3 * cpu_seconds(snapshot.model_dump_json, ROUNDS), 1),
        "whole_parse_cpu_ms": round(
            1e3 * cpu_seconds(lambda: MetadataSnapshot.model_validate_json(content), ROUNDS), 1
        ),
        "whole_compile_cpu_ms": round(1e3 * cpu_seconds(lambda: CompiledSnapshot(snapshot), ROUNDS), 1),
    }


def _milliseconds(work: Callable[[], object]) -> float:
    spent = []
    for _ in range(5):
        started = time.perf_counter()
        work()
        spent.append(time.perf_counter() - started)
    return round(1e3 * min(spent), 1)
