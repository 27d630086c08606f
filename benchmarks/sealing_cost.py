"""The cost of protection per event of the retail data, in the map stage and in the commit stage, without Spark."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pipeline import Pipeline, prepared, wire, without_collector
from benchmarks.workload import EXAMPLE, SOURCES, write_inbox
from idgraph.app import wiring
from idgraph.model import canonical
from idgraph.model.attributes import AttributeMetadata
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot
from idgraph.model.specs import SpecDocument
from ingestion.sources.files.lines import read_records
from sinks.keyring.provider import KeyringFile
from sinks.sqlite.data_keys import SqliteDataKeys
from transforms.privacy.keys import WrappedKey
from transforms.privacy.sealing import DataKeys, SealingKey
from transforms.spec.mapping import CompiledSnapshot

ROUNDS = 3


def cost_of_sealing(folder: Path) -> dict[str, Any]:
    """CPU microseconds an event with the example's protection and without any, the best of a few rounds each,
    taken in turns; the hit rate is over the fragments that were asked for, a chunk of events at a time."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(ROUNDS):
        for protected in (True, False):
            figures = _run(folder / f"{turn}-{protected}", protected)
            spent[protected].append(figures["us"])
            if protected:
                sealed = figures
    with_it, without = min(spent[True]), min(spent[False])
    return {
        "events": int(sealed["events"]),
        "sealed_values_an_event": round(sealed["sealed"] / sealed["events"], 2),
        "cpu_us_an_event_protected": round(with_it, 1),
        "cpu_us_an_event_unprotected": round(without, 1),
        "cpu_us_a_sealed_value": round((with_it - without) * sealed["events"] / sealed["sealed"], 1),
        "protection_share_of_cpu": round((with_it - without) / with_it, 3),
        "data_key_cache_hit_rate": round(sealed["hits"] / sealed["asked"], 3),
    }


class _CountedStore(SqliteDataKeys):
    """Counts the fragments whose data keys were not cached."""

    read = 0

    def get(self, fragment_ids: Sequence[str]) -> dict[str, WrappedKey]:
        self.read += len(fragment_ids)
        return super().get(fragment_ids)


class _CountedDataKeys(DataKeys):
    asked = 0

    def fetch(self, fragment_ids: Iterable[str], create: bool) -> dict[str, SealingKey]:
        wanted = list(fragment_ids)
        self.asked += len(wanted)
        return super().fetch(wanted, create)


def _run(folder: Path, protected: bool) -> dict[str, float]:
    settings = prepared(folder)
    write_inbox(folder / "inbox", 1)
    compiled = CompiledSnapshot(snapshot(protected))
    events = sealed = 0
    with without_collector(), wiring.opened(settings) as tools:
        store = _CountedStore(settings.directory / "data-keys.db")
        keys = _CountedDataKeys(KeyringFile(settings.keyring_file()), store)
        pipeline = Pipeline(settings, tools, compiled, keys)
        started = time.process_time()
        for path, source in _files(folder / "inbox"):
            outputs = pipeline.map(read_records(path, source, 1 << 20, folder / "inbox" / source))
            pipeline.commit(wire(outputs))
            events += sum(output.events for output in outputs)
            sealed += sum(output.protected for output in outputs)
        spent = time.process_time() - started
        keys.close()
    return {
        "us": 1e6 * spent / events,
        "events": events,
        "sealed": sealed,
        "asked": keys.asked,
        "hits": keys.asked - store.read,
    }


def _files(inbox: Path) -> Iterator[tuple[Path, str]]:
    for source in SOURCES:
        for path in sorted((inbox / source).iterdir()):
            yield path, source


def snapshot(protected: bool) -> MetadataSnapshot:
    """The example's specs and attributes, with its protection or without any."""
    created = {"version": 1, "created": "2024-01-01T00:00:00Z"}
    specs = [
        SpecDocument.model_validate({**canonical.decode(file.read_bytes()), **created})
        for file in sorted((EXAMPLE / "specs").glob("*.json"))
    ]
    declared = [
        AttributeMetadata.model_validate({**_declared(content, protected), **created})
        for content in canonical.decode((EXAMPLE / "attributes.json").read_bytes())
    ]
    return MetadataSnapshot(
        version=1, specs=tuple(specs), attributes=tuple(declared), defaults=DiscoveryDefaults()
    )


def _declared(content: Mapping[str, Any], protected: bool) -> dict[str, Any]:
    return dict(content) if protected else {**content, "encryption": "none"}
