"""What an event costs in each stage, in this process, without Spark: for profiling.

CPU microseconds an event, and commit figures a fragment too. `python -m benchmarks stages --shops 2`; to see
where they go, run it under py-spy or cProfile.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from app import wiring
from app.settings import Settings
from benchmarks.product import installed
from benchmarks.workload import SOURCES, clear, write_inbox
from ingestion.commit_stage import CommitStage
from ingestion.files import read_records
from ingestion.map_output import MapOutput
from ingestion.map_stage import MapStage
from ingestion.set_aside import BatchAttempt, LetterWriter
from ingestion.workers import WorkerResources
from merge import codec
from merge.batch_size import BatchSize
from transforms.compiled import CompiledSnapshot


def measure(folder: Path, shops: int) -> dict[str, Any]:
    """CPU microseconds by stage."""
    clear(folder)
    with installed(folder) as (_, settings):
        write_inbox(folder / "inbox", shops)
        with closing(wiring.metadata_client(settings)) as client:
            answer = client.snapshot(None, 0)
            assert answer is not None
            compiled = CompiledSnapshot(answer.snapshot)
        gc.collect()
        gc.freeze()
        gc.disable()
        try:
            return _measured(settings, compiled, folder / "inbox")
        finally:
            gc.enable()


def _measured(settings: Settings, compiled: CompiledSnapshot, inbox: Path) -> dict[str, Any]:
    clock = _Clock()
    events = fragments = written = size = 0
    with wiring.opened(settings) as tools:
        for source in SOURCES:
            for path in sorted((inbox / source).iterdir()):
                with clock.of("read"):
                    records = list(read_records(path, source, 1 << 20, inbox / source))
                with clock.of("map"):
                    outputs = list(map_stage(settings, compiled, tools).run(records))
                with clock.of("encode"):
                    given = list(wire(outputs))
                with clock.of("commit"):
                    result = CommitStage(
                        tools.store,
                        tools.index,
                        compiled.attributes.index_rules,
                        BatchSize(settings.flow.commit_fragments),
                    ).run(given)
                events += len(records)
                fragments += len(given)
                size += sum(len(state) for _, state in given)
                written += result.written
    spent = clock.seconds
    return {
        "events": events,
        "fragments_an_event": round(fragments / events, 3),
        "bytes_a_fragment": round(size / fragments),
        "cpu_us_an_event": {name: round(1e6 * seconds / events, 1) for name, seconds in spent.items()},
        "cpu_us_an_event_all": round(1e6 * sum(spent.values()) / events, 1),
        "commit_us_a_fragment": round(1e6 * spent["commit"] / written, 1),
    }


class _Clock:
    """CPU seconds by name."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        started = time.process_time()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - started


def map_stage(settings: Settings, compiled: CompiledSnapshot, tools: WorkerResources) -> MapStage:
    """The stage as a worker has it."""
    return MapStage(
        compiled,
        settings.sources_by_name(),
        settings.flow,
        BatchAttempt("bench", "1"),
        tools.data_keys,
        tools.blind_index,
        LetterWriter(tools.sealer),
    )


def wire(outputs: list[MapOutput]) -> Iterator[tuple[str, bytes]]:
    for output in outputs:
        for fragment_id, state in output.fragments.items():
            state.normalise()
            yield fragment_id, codec.encode(state)
