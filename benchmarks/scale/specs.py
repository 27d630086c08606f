"""The cost of an event as specs grow to a thousand: the snapshot, compiling, the choice of a spec, the map stage."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.flow_run import mib
from benchmarks.pipeline import cpu_seconds, pipeline, without_collector
from benchmarks.scale.growing_store import records
from benchmarks.sealing_cost import snapshot
from benchmarks.workload import events
from idgraph.model.events import RawRecord
from idgraph.model.snapshots import MetadataSnapshot
from transforms.spec.mapping import MAX_CACHED_ROUTES, CompiledSnapshot

SIZES = (10, 100, 1000)
EVENTS = 10_000
ROUNDS = 3


def measure(folder: Path) -> dict[str, Any]:
    """By number of specs, each of another event type of the web site: CPU of one worker process."""
    return {f"{count} specs": _measured(folder / str(count), count) for count in SIZES}


def _measured(folder: Path, count: int) -> dict[str, Any]:
    many = _snapshot(count)
    content = many.model_dump_json().encode()
    compiled = CompiledSnapshot(many)
    shared = CompiledSnapshot(_snapshot(count, are_alike=True))
    types = [f"type{number}" for number in range(count)]
    with without_collector():
        compiling = cpu_seconds(lambda: [compiled.spec_for("segment", each) for each in types])
        sharing = cpu_seconds(lambda: [shared.spec_for("segment", each) for each in types])
    edited = many.model_copy(update={"version": 2})
    unknown = iter(range(10**9))
    with pipeline(folder, many) as stages, without_collector():
        given = _spread(types)
        mapping = cpu_seconds(lambda: stages.map(given), ROUNDS)
    full = CompiledSnapshot(many)
    for number in range(MAX_CACHED_ROUTES):
        full.spec_for("segment", f"unknown{number}")
    return {
        "snapshot_mib": mib(len(content)),
        "parse_ms": _ms(lambda: MetadataSnapshot.model_validate_json(content)),
        "compile_all_ms": round(1e3 * compiling, 1),
        "compile_all_with_the_same_operations_ms": round(1e3 * sharing, 1),
        "take_an_edit_ms": _ms(lambda: CompiledSnapshot(edited, compiled)),
        "map_us_an_event": round(1e6 * mapping / EVENTS, 1),
        "choose_for_a_new_type_us": _us(lambda: compiled.snapshot.spec_for("segment", f"new{next(unknown)}")),
        f"choose_after_{MAX_CACHED_ROUTES}_types_us": _us(lambda: full.spec_for("segment", "another")),
    }


def _ms(work: Any) -> float:
    return round(1e3 * cpu_seconds(work, ROUNDS), 1)


def _us(work: Any) -> float:
    return round(1e6 * cpu_seconds(work, 20), 1)


def _snapshot(count: int, are_alike: bool = False) -> MetadataSnapshot:
    """Specs of the size of the example's, each with operations of its own unless they are to be alike."""
    example = snapshot(protected=True)
    (web,) = [spec for spec in example.specs if spec.source == "segment"]
    many = [
        web.model_copy(
            update={
                "name": f"web-{number}",
                "event_type": f"type{number}",
                "operations": [*web.operations, {"operation": "default", "spec": own}],
            }
        )
        for number in range(count)
        for own in [{"activity": {"kind": 0 if are_alike else number}}]
    ]
    return example.model_copy(update={"specs": tuple(many)})


def _spread(types: list[str]) -> list[RawRecord]:
    month = events("segment")[:EVENTS]
    given = [event | {"type": types[number % len(types)]} for number, event in enumerate(month)]
    return list(records("segment", given, 1))
