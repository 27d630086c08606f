"""The stages over embedded stores in this process, without Spark and without a metadata service."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.workload import clear, lay_out
from idgraph.app import wiring
from idgraph.app.adapters import indexes, stores
from idgraph.app.settings.document import Settings, load
from idgraph.model.batch_size import BatchSize
from idgraph.model.events import RawRecord
from idgraph.model.snapshots import MetadataSnapshot
from ingestion.sources.files.lines import DamagedRecord
from ingestion.spark.workers import WorkerResources
from ingestion.stages.commit import CommitOutput, CommitStage
from ingestion.stages.dead_letters import BatchAttempt, DeadLetterWriter
from ingestion.stages.map_output import EncodedChange, MapOutput
from ingestion.stages.map_stage import MapStage
from sinks.keyring.provider import KeyringFile
from tests.support.processes import free_port
from transforms.privacy.sealing import DataKeys
from transforms.spec.mapping import CompiledSnapshot


class Pipeline:
    """Both stages of one installation under one snapshot."""

    def __init__(
        self,
        settings: Settings,
        tools: WorkerResources,
        compiled: CompiledSnapshot,
        data_keys: DataKeys | None = None,
    ) -> None:
        self.settings = settings
        self.tools = tools
        self.compiled = compiled
        self._data_keys = data_keys or tools.data_keys
        self._size = BatchSize(settings.flow.commit_fragments)
        self._projection = tools.projection(lambda: compiled.attributes.index_rules)

    def map(self, records: Iterable[RawRecord | DamagedRecord]) -> list[MapOutput]:
        """One map task."""
        stage = MapStage(
            self.compiled,
            self.settings.sources_by_name(),
            self.settings.flow,
            BatchAttempt("bench", "1"),
            self._data_keys,
            self.tools.blind_index,
            DeadLetterWriter(self.tools.sealer),
        )
        return list(stage.run(records))

    def commit(self, fragments: Iterable[EncodedChange]) -> CommitOutput:
        """One commit task."""
        return CommitStage(self.tools.store, self._size).run(fragments)

    def project(self) -> int:
        """Project as the flow's projection does; gives the number of fragments."""
        return self._projection.sweep().projected


def wire(outputs: Iterable[MapOutput]) -> Iterator[EncodedChange]:
    """Changes of fragments as they cross the shuffle."""
    for output in outputs:
        yield from output.encoded()


def prepared(folder: Path, more: str = "") -> Settings:
    """A new folder with the example's configuration, `more` of it in TOML, and a keyring; in servers, with tables and index."""
    clear(folder)
    config = lay_out(folder, free_port())
    config.write_text(config.read_text() + more)
    settings = load(config)
    wiring.prepare_directory(settings)
    KeyringFile.create(settings.keyring_file())
    if more:
        stores.create(settings)
        indexes.create(settings)
    return settings


@contextmanager
def pipeline(folder: Path, snapshot: MetadataSnapshot, more: str = "") -> Iterator[Pipeline]:
    """A pipeline in a new folder; adapters are closed at its end. `more` as of `prepared`."""
    settings = prepared(folder, more)
    with wiring.opened(settings) as tools:
        yield Pipeline(settings, tools, CompiledSnapshot(snapshot))


@contextmanager
def without_collector() -> Iterator[None]:
    """Without Python's garbage collector, as a task runs."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


class Clock:
    """CPU seconds of this process by name, and seconds of the clock."""

    def __init__(self) -> None:
        self.cpu: dict[str, float] = {}
        self.wall: dict[str, float] = {}

    @contextmanager
    def of(self, name: str) -> Iterator[None]:
        cpu, wall = time.process_time(), time.perf_counter()
        yield
        self.cpu[name] = self.cpu.get(name, 0.0) + time.process_time() - cpu
        self.wall[name] = self.wall.get(name, 0.0) + time.perf_counter() - wall


def cpu_seconds(work: Callable[[], object], rounds: int = 1) -> float:
    """The least CPU seconds of several rounds of a call without arguments."""
    spent = []
    for _ in range(rounds):
        started = time.process_time()
        work()
        spent.append(time.process_time() - started)
    return min(spent)
