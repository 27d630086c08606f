"""The rate of `idgraph seal`: stored values per second, and fragments that are renamed with it."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.pipeline import pipeline, wire
from benchmarks.sealing_cost import snapshot
from benchmarks.workload import SOURCES, write_inbox
from idgraph.jobs.reencrypt.stored_sealing import StoredSealing
from idgraph.model.jobs import Progress
from ingestion.sources.files.lines import read_records
from transforms.spec.mapping import CompiledSnapshot


def measure(folder: Path) -> dict[str, Any]:
    """One shop's events, stored with nothing protected and then sealed as the example protects them: seconds of the
    clock, the last step, which takes the old bytes out of the files, apart."""
    with pipeline(folder, snapshot(protected=False)) as stages:
        write_inbox(folder / "inbox", 1)
        for source in SOURCES:
            for path in sorted((folder / "inbox" / source).iterdir()):
                stages.commit(wire(stages.map(read_records(path, source, 1 << 20, path.parent))))
        tools = stages.tools
        with closing(tools.dead_letters):
            sealing = StoredSealing(tools, CompiledSnapshot(snapshot(protected=True)))
            started = time.perf_counter()
            done = Progress(tools.store.count())
            for _ in sealing.run(done):
                pass
            sealed = time.perf_counter() - started
            sealing.finish()
            finished = time.perf_counter() - started - sealed
    return {
        "fragments": done.total,
        "values_sealed": done.parts("values").total(),
        "fragments_renamed_or_changed": done.parts("renamed").total(),
        "values_sealed_a_second": round(done.parts("values").total() / sealed),
        "fragments_written_a_second": round(done.counts["fragments"] / sealed),
        "last_step_seconds": round(finished, 2),
    }
