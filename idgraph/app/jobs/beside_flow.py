"""A flow of one source beside the others, as a backfill runs it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path

from idgraph.app import flow_runner, wiring
from idgraph.app.settings.document import Settings
from idgraph.app.settings.tables import MetricsSettings
from idgraph.files import exclusive_lock
from idgraph.model.errors import ConfigError
from idgraph.model.sources import FileSource
from idgraph.snapshot_file import PinnedSnapshot
from ingestion.sources.stream import Intake
from ingestion.stages.outcomes import BatchReport


class LocalBesideFlow:
    """`BesideFlow` of this machine's configuration, without a port for metrics: that is the other flow's."""

    def __init__(self, settings: Settings, name: str, source: FileSource) -> None:
        flow = settings.flow.model_copy(update={"name": name, "trigger_seconds": 0.0})
        changed = {"flow": flow, "sources": (source,), "metrics": MetricsSettings()}
        self._settings = settings.model_copy(update=changed)
        self.name = name
        self.state: Path = self._settings.flow_state()

    def newest(self) -> PinnedSnapshot | None:
        return wiring.newest_snapshot(self._settings)

    def forget(self) -> None:
        wiring.prepare_directory(self._settings)
        checkpoint, forgotten = self.state / "checkpoint", self.state / "forgotten"
        with exclusive_lock(self.state):
            try:
                if forgotten.exists():
                    shutil.rmtree(forgotten)
                if checkpoint.exists():
                    # Whole or not at all: of half a checkpoint Spark would go on.
                    checkpoint.rename(forgotten)
                    shutil.rmtree(forgotten)
            except OSError as error:
                raise ConfigError(f"{error.filename or checkpoint}: {error.strerror}") from None

    def run(
        self,
        stop: threading.Event,
        intake: Intake,
        on_batch: Callable[[BatchReport], None],
        on_start: Callable[[], None],
        sealed_by: str | None,
    ) -> None:
        flow_runner.run_flow(self._settings, stop, intake, on_batch, on_start, sealed_by)
