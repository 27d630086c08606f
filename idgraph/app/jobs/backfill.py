"""Backfill: an archive of one source's files through the flow's stages, beside the flow, with a checkpoint of its own."""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from idgraph.app import wiring
from idgraph.app.flow_runner import run_flow
from idgraph.app.settings.document import Settings
from idgraph.app.settings.tables import MetricsSettings
from idgraph.files import exclusive_lock
from idgraph.jobs.archive import archive_files, archive_path, bytes_an_event
from idgraph.jobs.job import Job, JobRunner, Plan, Run
from idgraph.jobs.reencrypt.policy_change import protection_of, sealed_by
from idgraph.model.errors import ConfigError, JobStoppedError
from idgraph.model.jobs import JobKind, Point, Progress, Requester
from idgraph.model.kafka import KafkaSource
from idgraph.model.sources import FileSource, SourceConfig, file_sources, is_glob
from ingestion.sources.files.lines import size_of
from ingestion.sources.files.taken import folder_of, path_below
from ingestion.sources.stream import Intake
from ingestion.spark.checkpoints import query_id
from ingestion.stages.outcomes import BatchReport

BATCH_EVENTS = 100_000
"""About how many one micro-batch takes, as far as files allow: some seconds' worth, after which it can be stopped."""

THROTTLED_SECONDS = 5.0
"""How much of a throttled backfill's time one micro-batch is worth."""
_NAMED = 40
"""Characters of a source's name in that of its backfill."""


class Archive(NamedTuple):
    """The files that a backfill finds. `bytes` are those of the files as they lie on disk."""

    settings: Settings
    files: int
    bytes: int
    bytes_an_event: float

    def state(self) -> Path:
        """The backfill's directory."""
        return self.settings.flow_state()


def find_archive(settings: Settings, source: str, path: Path) -> Archive:
    """The archive, and the settings of the flow that takes it. Raises ConfigError."""
    config = _in_files(settings.source(source), archive_path(path))
    _check_apart(settings, config)
    # A long name is cut, so the whole one counts in the hash.
    target = f"{source}\n{config.path}" if len(source) > _NAMED else str(config.path)
    name = f"backfill-{source[:_NAMED]}-{hashlib.sha256(target.encode()).hexdigest()[:8]}"
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
    common = source.model_dump(include=set(SourceConfig.model_fields))
    try:
        return FileSource(**common, path=path)
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


class Backfill(Job):
    """One archive of one source. What is done stands in the checkpoint; the point only counts."""

    kind = JobKind.BACKFILL
    reopens = True

    def __init__(self, archive: Archive, source: str, path: Path) -> None:
        self.archive = archive
        self.target = archive.settings.flow.name
        self.what = {"source": source, "archive": str(path)}
        self._source = source

    def plan(self, point: Point) -> Plan:
        # Of a checkpoint that was removed nothing counts.
        resumes = "protection" in point and query_id(self.archive.state() / "checkpoint") is not None
        return Plan(f"the backfill of {self._source}", self.archive.files, "file", resumes)


def run_backfill(
    runner: JobRunner,
    job: Backfill,
    origin: Requester,
    stop: threading.Event,
    rate: float | None,
    again: bool,
    on_start: Callable[[Run], None],
    on_batch: Callable[[BatchReport], None],
) -> Progress:
    """Run until all files are done or `stop` is set, at most `rate` events a second; gives what is done so far. With
    `again`, take all files again. `on_start` is called once nothing else runs this backfill.

    Raises JobStoppedError where it ended before its end, and what `run_flow` raises; whatever happened, running again
    resumes where it stopped.
    """
    archive = job.archive
    stopped: list[JobStoppedError] = []
    with runner.started(job, origin, again) as run:
        if again:
            _forget(archive)
        if not run.point:
            newest = wiring.newest_snapshot(archive.settings)
            # It answers for what it writes itself: no need to look through all that others have stored.
            protection = protection_of(newest.snapshot) if newest else None
            run.page({"protection": protection}, durable=True)

        def take(report: BatchReport) -> None:
            run.point = _counted(run, report)
            on_batch(report)
            try:
                run.page(run.point, durable=True)
            except JobStoppedError as error:
                # A micro-batch that is done must not fail because of it.
                stopped.append(error)
                stop.set()

        events = BATCH_EVENTS if rate is None else min(BATCH_EVENTS, rate * THROTTLED_SECONDS)
        intake = Intake(True, max(1, round(events * archive.bytes_an_event)), rate)
        sealed_by = run.point["protection"]
        run_flow(archive.settings, stop, intake, take, lambda: on_start(run), sealed_by)
        if stopped:
            raise stopped[0]
        if stop.is_set() and run.progress.done < run.progress.total:
            raise JobStoppedError("stopped; the same command resumes it", is_cancelled=False)
    return run.progress


def is_unsealed(runner: JobRunner, archive: Archive, point: Point) -> bool:
    """Whether protection changed while the backfill ran, after which nothing has sealed what it had written."""
    newest = wiring.newest_snapshot(archive.settings)
    if newest is None:
        return False
    with wiring.opened(archive.settings) as resources:
        sealed = sealed_by(runner, archive.settings.flow.name, resources.store)
    return (point.get("protection") if sealed is None else sealed) != protection_of(newest.snapshot)


def _forget(archive: Archive) -> None:
    """Have the run take all files again. Raises ConfigError, and AlreadyRunningError while its flow runs."""
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


def _counted(run: Run, report: BatchReport) -> dict[str, Any]:
    """Count a micro-batch; one that is retried after a crash counts once. Gives the point behind it."""
    point, progress, counts = run.point, run.progress, report.counts
    if _query(report.batch) != _query(point.get("batch", report.batch)):
        # Of another checkpoint nothing counts.
        progress.done, progress.counts = 0, Counter()
    elif report.batch == point.get("batch"):
        progress.counts = Counter(point["before"])
        progress.done = progress.counts.pop("files", 0)
    before = {"files": progress.done, **progress.counts}
    progress.done += counts.files
    progress.counts.update(
        events=counts.events,
        written=counts.written,
        dead_letters=counts.dead_letter_count(),
        conflicts=counts.conflicts,
    )
    return {"protection": point["protection"], "batch": report.batch, "before": before}


def _query(batch: str) -> str:
    return batch.rpartition("/")[0]
