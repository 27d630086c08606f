"""All fragments of a store projected again and again in tasks, for `benchmarks.cluster`: a program of its own, since one process
has one JVM. Writes the CPU of each process per fragment, without that of starting, to standard output."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.processes import cpu_below, cpu_of
from idgraph.app import metadata_access, wiring
from idgraph.app.java import class_archives
from idgraph.app.settings.document import load
from ingestion.spark.projection_tasks import ProjectionTasks
from ingestion.spark.session import session_beside

ROUNDS = 3


def measure(config: Path, watched: Mapping[str, Sequence[int]]) -> dict[str, float]:
    """`watched` are further processes by kind, with all below each."""
    settings = load(config)
    pinned = metadata_access.snapshot_to_read_by(settings)
    tasks = ProjectionTasks(wiring.worker_plan(settings), lambda: pinned, lambda: False)
    rules = wiring.index_rules(settings, pinned)
    beside = session_beside(settings.flow, settings.spark, settings.directory / "again", class_archives())
    projected, seconds, used = 0, 0.0, dict.fromkeys(["driver", "driver's JVM", *watched], 0.0)
    with wiring.opened(settings) as resources, beside as session, tasks.on(session):
        jvm = session.sparkContext._gateway.proc.pid
        projection = resources.projection(lambda: rules, tasks)
        fragments = list(resources.store.ids())

        def cpu() -> dict[str, float]:
            others = {
                kind: sum(sum(cpu_below(each).values()) for each in numbers)
                for kind, numbers in watched.items()
            }
            return {"driver": time.process_time(), "driver's JVM": cpu_of(jvm), **others}

        # In the first round executors start, and open what they need.
        for number in range(1 + ROUNDS):
            resources.store.enqueue(fragments)
            started, before = time.monotonic(), cpu()
            swept = projection.sweep()
            if number:
                after = cpu()
                projected += swept.projected
                seconds += time.monotonic() - started
                used = {kind: used[kind] + after[kind] - before[kind] for kind in used}
    each = {f"us of {kind} per fragment": round(1e6 * value / projected, 1) for kind, value in used.items()}
    return {"fragments": projected, "fragments_per_second": round(projected / seconds), **each}


if __name__ == "__main__":
    print(json.dumps(measure(Path(sys.argv[1]), json.loads(sys.argv[2]))))
