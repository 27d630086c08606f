"""The cost of an event in each stage, in this process, without Spark: for profiling.

CPU microseconds an event, and commit figures a fragment too. `python -m benchmarks stages --shops 2`; to see
where they go, run it under py-spy or cProfile.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from benchmarks.pipeline import Clock, Pipeline, wire, without_collector
from benchmarks.product import installed
from benchmarks.workload import SOURCES, clear, write_inbox
from idgraph.app import metadata_access, wiring
from idgraph.app.settings.document import Settings
from ingestion.sources.files.lines import read_records
from transforms.spec.mapping import CompiledSnapshot


def measure(folder: Path, shops: int) -> dict[str, Any]:
    """CPU microseconds by stage."""
    clear(folder)
    with installed(folder) as (_, settings):
        write_inbox(folder / "inbox", shops)
        with closing(metadata_access.metadata_client(settings)) as client:
            answer = client.snapshot(None, 0)
            assert answer is not None
            compiled = CompiledSnapshot(answer.snapshot)
        with without_collector():
            return _measured(settings, compiled, folder / "inbox")


def _measured(settings: Settings, compiled: CompiledSnapshot, inbox: Path) -> dict[str, Any]:
    clock = Clock()
    events = fragments = written = size = 0
    with wiring.opened(settings) as tools:
        pipeline = Pipeline(settings, tools, compiled)
        for source in SOURCES:
            for path in sorted((inbox / source).iterdir()):
                with clock.of("read"):
                    records = list(read_records(path, source, 1 << 20, inbox / source))
                with clock.of("map"):
                    outputs = pipeline.map(records)
                with clock.of("encode"):
                    given = list(wire(outputs))
                with clock.of("commit"):
                    result = pipeline.commit(given)
                events += len(records)
                fragments += len(given)
                size += sum(len(state) for _, state, _ in given)
                written += result.written
        # As behind a flow at its limit: it commits several files while the projection rests.
        with clock.of("project"):
            projected = pipeline.project()
    spent = clock.cpu
    return {
        "events": events,
        "fragments_an_event": round(fragments / events, 3),
        "bytes_a_fragment": round(size / fragments),
        "cpu_us_an_event": {name: round(1e6 * seconds / events, 1) for name, seconds in spent.items()},
        "cpu_us_an_event_all": round(1e6 * sum(spent.values()) / events, 1),
        "commit_us_a_fragment": round(1e6 * spent["commit"] / written, 1),
        "project_us_a_fragment": round(1e6 * spent["project"] / projected, 1),
    }
