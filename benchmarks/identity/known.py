"""The cost of identity once links are known: the shop's people come again month after month, with the same identifiers.

The same states go into two embedded installations: as they are, and without the identifiers beside those that name the
fragments. So both have the same fragments and attributes, and only one of them has links.
"""

from __future__ import annotations

import gc
import json
from collections.abc import Iterable
from contextlib import closing
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.flow_run import FlowRun, run_until_done
from benchmarks.pipeline import Clock, Pipeline, pipeline, wire, without_collector
from benchmarks.product import command, installed
from benchmarks.workload import EXAMPLE, SOURCES, clear, write_inbox
from idgraph.app import metadata_access
from idgraph.app.cli import YOUNG_OBJECTS
from ingestion.sources.files.lines import read_records
from ingestion.stages.map_output import EncodedChange
from merge.fragments import FragmentState

MONTHS = 6
"""The first two are not counted: in them links are new, and fragments change their profiles."""
FLOW_MONTHS = 4
"""Only the latter half of whole flows is counted."""
_MONTH_MS = 30 * 86_400_000
_IDS = {"segment": "messageId", "amplitude": "insert_id", "orders": "order_id"}


def measure(folder: Path, shops: int) -> dict[str, Any]:
    """CPU microseconds per event with links and without, and the ratios of the rates."""
    clear(folder)
    with installed(folder / "with") as (_, settings):
        with closing(metadata_access.metadata_client(settings)) as client:
            answer = client.snapshot(None, 0)
            assert answer is not None
        snapshot = answer.snapshot
        with pipeline(folder / "linked", snapshot) as linked, pipeline(folder / "bare", snapshot) as bare:
            return _measured(folder / "inbox", shops, linked, bare)


def _measured(inbox: Path, shops: int, linked: Pipeline, unlinked: Pipeline) -> dict[str, Any]:
    spent: dict[str, list[float]] = {}
    usual = gc.get_threshold()
    # As the command line.
    gc.set_threshold(YOUNG_OBJECTS)
    for month in range(MONTHS):
        clear(inbox)
        events = write_inbox(inbox, shops, change=lambda *given, month=month: _later(month, *given))
        clock, files = Clock(), []
        for source in SOURCES:
            for path in sorted((inbox / source).iterdir()):
                with without_collector(), clock.of("map"):
                    records = list(read_records(path, source, 1 << 20, inbox / source))
                    files.append(list(wire(linked.map(records))))
        bare = [_without_links(each) for each in files]
        turn = [("with", linked, files), ("without", unlinked, bare)]
        for name, each, changes in turn if month % 2 else turn[::-1]:
            with clock.of(name):
                for some in changes:
                    each.commit(some)
                each.project()
        if month >= 2:
            for name, seconds in clock.cpu.items():
                spent.setdefault(name, []).append(1e6 * seconds / events)
            spent.setdefault("clock", []).append(clock.wall["without"] / clock.wall["with"])
    gc.set_threshold(*usual)
    pairs = list(zip(*(spent[name] for name in ("map", "with", "without")), strict=True))
    return {
        "cpu_us_per_event": {name: round(median(spent[name]), 1) for name in ("map", "with", "without")},
        "rate_of_commit_and_projection": [round(bare / full, 2) for _, full, bare in pairs],
        "the same by the clock": [round(each, 2) for each in spent["clock"]],
        "rate_of_all": [round((mapped + bare) / (mapped + full), 2) for mapped, full, bare in pairs],
        "aim": 0.9,
    }


def measure_flow(folder: Path, shops: int) -> dict[str, Any]:
    """The same through whole flows: events/s until all is searchable, from the first micro-batch on; CPU of all processes.

    So that nothing links, the flow without links has specs that take only the identifiers that name fragments, and events
    of a known user come without the device: one attribute less."""
    clear(folder)
    with installed(folder / "linked") as (linked, _), installed(folder / "bare") as (unlinked, _):
        specs = folder / "specs"
        specs.mkdir()
        for path in sorted((EXAMPLE / "specs").glob("*.json")):
            spec = json.loads(path.read_text())
            spec["identifiers"] = [
                each for each in spec["identifiers"] if {"primary", "fallback"} & each.keys()
            ]
            (specs / path.name).write_text(json.dumps(spec))
        command(unlinked, "specs", "apply", *map(str, sorted(specs.glob("*.json"))))
        runs: dict[str, list[FlowRun]] = {"with": [], "without": []}
        for month in range(FLOW_MONTHS):
            turn = [("with", linked, _later), ("without", unlinked, _later_without_device)]
            for name, config, change in turn if month % 2 else turn[::-1]:
                inbox = config.parent / "inbox"
                clear(inbox)
                events = write_inbox(inbox, shops, change=partial(change, month))
                for path in sorted(inbox.rglob("*.jsonl")):
                    path.rename(path.with_stem(f"{path.stem}-{month}"))
                runs[name].append(run_until_done(config, events))
                if month == 0:
                    # Beside the flow it would go on for months.
                    command(config, "seal")
    counted = {name: of[FLOW_MONTHS // 2 :] for name, of in runs.items()}
    pairs = list(zip(counted["with"], counted["without"], strict=True))
    return {
        "events": pairs[0][0].events,
        "searchable_events_per_second": {
            name: [round(run.events / run.searchable_seconds) for run in of] for name, of in counted.items()
        },
        "cpu_us_per_event": {name: [run.cpu_us_an_event for run in of] for name, of in counted.items()},
        "rate": [round(bare.searchable_seconds / full.searchable_seconds, 2) for full, bare in pairs],
        "rate by CPU": [
            round(bare.cpu_us_an_event_all / full.cpu_us_an_event_all, 2) for full, bare in pairs
        ],
        "aim": 0.9,
    }


def _later_without_device(month: int, source: str, number: int, event: dict[str, Any]) -> dict[str, Any]:
    event = _later(month, source, number, event)
    if "userId" in event or "user_id" in event:
        for name in ("anonymousId", "device_id"):
            event.pop(name, None)
    return event


def _later(month: int, source: str, _: int, event: dict[str, Any]) -> dict[str, Any]:
    """The same person's event of a later month."""
    event = {**event, _IDS[source]: f"{event[_IDS[source]]}-{month}"}
    if source == "amplitude":
        event["time"] += month * _MONTH_MS
    else:
        key = "timestamp" if source == "segment" else "created_at"
        event[key] = event[key].replace("2024-03", f"2024-{3 + month:02d}")
    return event


def _without_links(changes: Iterable[EncodedChange]) -> list[EncodedChange]:
    bare = []
    for fragment_id, data, epoch in changes:
        state = FragmentState.decode(data)
        state.encoded = None
        state.sightings.clear()
        for each in state.identifiers.keys() - {fragment_id}:
            del state.identifiers[each]
        bare.append((fragment_id, state.encode(), epoch))
    return bare
