"""Backfill: an archive of one source's files through the flow's stages, beside the flow, with a checkpoint of its own."""

from __future__ import annotations

import hashlib
import shutil
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from idgraph.app import wiring
from idgraph.app.flow_runner import run_flow
from idgraph.app.settings.document import Settings
from idgraph.app.settings.tables import MetricsSettings
from idgraph.files import exclusive_lock
from idgraph.jobs.backfill.archive import BackfillProgress, Tally, archive_files, archive_path, bytes_an_event
from idgraph.jobs.reencrypt.background_sealing import keep_sealed_by, protection_of, sealed_by
from idgraph.model.errors import ConfigError
from ingestion.sources.configuration import FileSource, SourceConfig
from ingestion.sources.files.globs import is_glob
from ingestion.sources.files.lines import size_of
from ingestion.sources.files.taken import file_sources, folder_of, path_below
from ingestion.sources.kafka.configuration import KafkaSource
from ingestion.sources.stream import Intake
from ingestion.stages.outcomes import BatchReport

BATCH_EVENTS = 100_000
"""About how many one micro-batch takes, as far as files allow: some seconds' worth, after which it can be stopped."""

THROTTLED_SECONDS = 5.0
"""How much of a throttled backfill's time one micro-batch is worth."""
_NAMED = 40
"""Characters of a source's name in that of its backfill."""


class Archive(NamedTuple):
    """What a backfill finds. `bytes` are those of the files as they lie on disk."""

    settings: Settings
    files: int
    bytes: int
    bytes_an_event: float

    def state(self) -> Path:
        """The backfill's directory."""
        return self.settings.flow_state()


@dataclass(frozen=True, slots=True)
class BackfillStep:
    """After a micro-batch: what is done of how much. `seconds_left` is None while it cannot be determined."""

    report: BatchReport
    done: Tally
    files: int
    bytes: int
    seconds_left: float | None


def find_archive(settings: Settings, source: str, path: Path) -> Archive:
    """The archive, and the settings of the flow that takes it. Raises ConfigError."""
    config = _in_files(settings.source(source), archive_path(path))
    _check_apart(settings, config)
    # A long name is cut, so it counts among what distinguishes backfills .
    reported = f"{source}\n{config.path}" if len(source) > _NAMED else str(config.path)
    name = f"backfill-{source[:_NAMED]}-{hashlib.sha256(reported.encode()).hexdigest()[:8]}"
    flow = settings.flow.model_copy(update={"name": name, "trigger_seconds": 0.0})
    found = sorted(archive_files(config))
    size = sum(map(size_of, found))
    sample = bytes_an_event(found[len(found) // 2]) if found else 0.0
    return Archive(
        settings.model_copy(
            # It runs beside the flow, whose port that is.
            update={"flow": flow, "sources": (config,), "metrics": MetricsSettings()}
        ),
        len(found),
        size,
        sample,
    )


def _in_files(source: FileSource | KafkaSource, path: Path) -> FileSource:
    """The source as one of files; of one in Kafka too, if its records say all themselves. Raises ConfigError."""
    if isinstance(source, FileSource):
        return source.model_copy(update={"path": path})
    reported = source.model_dump(include=set(SourceConfig.model_fields))
    try:
        return FileSource(**reported, path=path)
    except ValidationError:
        raise ConfigError(
            f"source {source.name}: its envelope stands in keys, headers or timestamps, which a file has not"
        ) from None


def _check_apart(settings: Settings, archive: FileSource) -> None:
    """Raises ConfigError for an archive that holds what is no event of its source: nothing takes that back."""
    folder = folder_of(archive)
    known = file_sources(settings.sources_by_name()).values()
    others = [folder_of(each) for each in known if each.name != archive.name]
    for place in (settings.directory, settings.keyring_file(), *others):
        if not is_glob(archive.path) and path_below(folder, place) is not None:
            raise ConfigError(f"{folder}: this archive holds {place}, which has no events of {archive.name}")


def forget(archive: Archive) -> None:
    """Have the next run take all files again. Raises ConfigError, and AlreadyRunningError while the backfill runs."""
    wiring.prepare_directory(archive.settings)
    checkpoint, forgotten = archive.state() / "checkpoint", archive.state() / "forgotten"
    with exclusive_lock(archive.state()):
        try:
            if forgotten.exists():
                shutil.rmtree(forgotten)
            if checkpoint.exists():
                # Whole or not at all: of half a checkpoint Spark would go on.
                checkpoint.rename(forgotten)
                shutil.rmtree(forgotten)
        except OSError as error:
            raise ConfigError(f"{error.filename or checkpoint}: {error.strerror}") from None


def done_before(archive: Archive) -> Tally:
    """What earlier runs have done."""
    return BackfillProgress(archive.state()).done


def run_backfill(
    archive: Archive,
    stop: threading.Event,
    rate: float | None,
    on_step: Callable[[BackfillStep], None],
    on_start: Callable[[], None] = lambda: None,
) -> Tally:
    """Run until all files are done or `stop` is set, at most `rate` events a second; gives what is done so far. `on_start`
    is called once nothing else runs this backfill.

    Raises what `run_flow` raises; whatever happened, running again goes on where it stopped.
    """
    steps = _Steps(archive, on_step)
    _keep_protection(archive)
    events = BATCH_EVENTS if rate is None else min(BATCH_EVENTS, rate * THROTTLED_SECONDS)
    intake = Intake(True, max(1, round(events * archive.bytes_an_event)), rate)
    run_flow(archive.settings, stop, intake, steps.take, on_start)
    return steps.progress().done


def is_unsealed(archive: Archive) -> bool:
    """Whether protection changed while the backfill ran, after which nothing has sealed what it had written."""
    file, newest = wiring.sealed_file(archive.settings), wiring.newest_snapshot(archive.settings)
    return newest is not None and sealed_by(file) != protection_of(newest.snapshot)


def _keep_protection(archive: Archive) -> None:
    # It answers for what it writes itself: no need to look through all that others have stored.
    file, newest = wiring.sealed_file(archive.settings), wiring.newest_snapshot(archive.settings)
    if newest is not None and sealed_by(file) is None:
        wiring.prepare_directory(archive.settings)
        keep_sealed_by(file, protection_of(newest.snapshot))


class _Steps:
    """Counts micro-batches as they are done, and reports each."""

    def __init__(self, archive: Archive, on_step: Callable[[BackfillStep], None]) -> None:
        self._archive = archive
        self._on_step = on_step
        self._estimate = _Estimate(archive.bytes)
        self._progress: BackfillProgress | None = None

    def progress(self) -> BackfillProgress:
        """Read when it is first asked for: a checkpoint that is damaged is repaired when the flow starts."""
        if self._progress is None:
            self._progress = BackfillProgress(self._archive.state())
        return self._progress

    def take(self, report: BatchReport) -> None:
        """A micro-batch is done."""
        known = self.progress()
        known.take(report)
        left = self._estimate.seconds_left(known.done.bytes, report.counts.file_bytes)
        self._on_step(BackfillStep(report, known.done, self._archive.files, self._archive.bytes, left))


class _Estimate:
    """How long the rest takes at the rate since the first micro-batch of this run."""

    def __init__(self, total: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._clock = clock
        self._began: float | None = None
        self._bytes = 0

    def seconds_left(self, done: int, taken: int) -> float | None:
        """`taken` bytes of files were done just now, `done` altogether."""
        if self._began is None:
            # The first has Spark's start in it.
            self._began = self._clock()
            return None
        self._bytes += taken
        seconds = self._clock() - self._began
        return max(0, self._total - done) * seconds / self._bytes if self._bytes else None
