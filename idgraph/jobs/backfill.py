"""Backfill: an archive of one source's files, or older messages of its topics in Pulsar, through the flow's stages, beside the flow, with a checkpoint of its own."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import Field, ValidationError

from idgraph.jobs.archive import archive_files, archive_path, bytes_an_event
from idgraph.jobs.job import Job, Plan, Run
from idgraph.jobs.kind import BesideFlow, JobContext
from idgraph.jobs.reencrypt.policy_change import protection_of, sealed_by
from idgraph.model.documents import StrictDocument
from idgraph.model.errors import ConfigError, JobStoppedError
from idgraph.model.jobs import JobKind, JobType, Point
from idgraph.model.pulsar import Bound, PulsarSource, bound
from idgraph.model.sources import FileSource, SourceConfig, file_sources, is_glob
from ingestion.sources.files.lines import size_of
from ingestion.sources.files.taken import folder_of, path_below
from ingestion.sources.stream import Intake
from ingestion.spark.checkpoints import query_id
from ingestion.stages.outcomes import BatchReport

BATCH_EVENTS = 100_000
"""The approximate number of events in one micro-batch, as far as files allow: some seconds' worth, after
which it can be stopped."""

THROTTLED_SECONDS = 5.0
"""The time of a throttled backfill that one micro-batch is worth."""
_NAMED = 40
"""Characters of a source's name in that of its backfill."""


class BackfillParameters(StrictDocument):
    """An archive of a source's files, or with `since` the messages between two places of its topics; at most `rate` events per
    second."""

    source: str
    archive: Path | None = None
    since: str | None = None
    until: str = "latest"
    rate: float | None = Field(default=None, ge=1)


class Archive(NamedTuple):
    """The files that a backfill finds, and the flow that takes them. `bytes` are those of the files as they lie on disk. With a
    `span`, `files` is about how many messages there are."""

    flow: BesideFlow
    source: SourceConfig
    files: int
    bytes: int
    bytes_an_event: float
    span: tuple[Bound, Bound] | None = None


def find_archive(context: JobContext, source: str, path: Path) -> Archive:
    """The archive of a source. Raises ConfigError."""
    config = _in_files(context.source(source), archive_path(path))
    _check_apart(context, config)
    # A long name is cut, so the whole one counts in the hash.
    target = f"{source}\n{config.path}" if len(source) > _NAMED else str(config.path)
    name = _name(source, target)
    found = sorted(archive_files(config))
    size = sum(map(size_of, found))
    sample = bytes_an_event(found[len(found) // 2]) if found else 0.0
    return Archive(context.flow(name, config), config, len(found), size, sample)


def find_messages(context: JobContext, source: str, since: str, until: str) -> Archive:
    """The messages from one place to another, both with them. Raises ConfigError and SourceUnavailableError."""
    config = context.source(source)
    if not isinstance(config, PulsarSource):
        raise ConfigError(f"source {source} is not in Pulsar; give the path of an archive, not --since")
    span = bound(since), bound(until)
    flow = context.flow(_name(source, f"{source}\n{since}\n{until}"), config)
    messages, size = flow.extent(*span)
    return Archive(flow, config, messages, size, size / max(1, messages), span)


def _name(source: str, target: str) -> str:
    return f"backfill-{source[:_NAMED]}-{hashlib.sha256(target.encode()).hexdigest()[:8]}"


def _in_files(source: SourceConfig, path: Path) -> FileSource:
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


def _check_apart(context: JobContext, archive: FileSource) -> None:
    """Raises ConfigError for an archive that holds other files than events of its source: nothing takes these
    back."""
    folder = folder_of(archive)
    known = file_sources(context.plan.sources).values()
    others = [folder_of(each) for each in known if each.name != archive.name]
    for place in (*context.plan.closed, *others):
        if not is_glob(archive.path) and path_below(folder, place) is not None:
            raise ConfigError(f"{folder}: this archive holds {place}, which has no events of {archive.name}")


class Backfill(Job):
    """One archive of one source. The checkpoint has the progress; the point only counts."""

    kind = JobKind.BACKFILL
    reopens = True

    def __init__(
        self,
        parameters: BackfillParameters,
        context: JobContext,
        archive: Archive,
        on_start: Callable[[Run], None] = lambda _: None,
        on_batch: Callable[[BatchReport], None] = lambda _: None,
    ) -> None:
        """`on_start` is called once nothing else runs this backfill, and `on_batch` after each micro-batch."""
        self.target = archive.flow.name
        self.what = {"source": parameters.source}
        if parameters.archive is not None:
            self.what["archive"] = str(parameters.archive.absolute())
        elif parameters.since is not None:
            self.what |= {"since": parameters.since, "until": parameters.until}
        self._archive = archive
        self._rate = parameters.rate
        self._context = context
        self._on_start = on_start
        self._on_batch = on_batch

    def plan(self, point: Point) -> Plan:
        # Without its checkpoint, a point is void.
        checkpoint = self._archive.flow.state / "checkpoint"
        resumes = "protection" in point and query_id(checkpoint) is not None
        unit = "message" if self._archive.span else "file"
        return Plan(f"the backfill of {self.what['source']}", self._archive.files, unit, resumes)

    def work(self, run: Run) -> None:
        """Run until all files are done or the context's `stop` is set; raises as a flow does."""
        archive, stop = self._archive, self._context.stop
        stopped: list[JobStoppedError] = []
        if self._context.again:
            archive.flow.forget()
        if not run.point:
            newest = archive.flow.newest()
            # It is responsible for its own writes: no need to look through all that others have stored.
            protection = protection_of(newest.snapshot) if newest else None
            run.page({"protection": protection}, durable=True)

        def take(report: BatchReport) -> None:
            run.point = _counted(run, report)
            self._on_batch(report)
            try:
                run.page(run.point, durable=True)
            except JobStoppedError as error:
                # A micro-batch that is done must not fail because of it.
                stopped.append(error)
                stop.set()

        rate = self._rate
        events = BATCH_EVENTS if rate is None else min(BATCH_EVENTS, rate * THROTTLED_SECONDS)
        intake = Intake(True, max(1, round(events * archive.bytes_an_event)), rate, archive.span)
        archive.flow.run(stop, intake, take, lambda: self._on_start(run), run.point["protection"])
        if stopped:
            raise stopped[0]
        # The number of messages is not exact.
        if stop.is_set() and (archive.span or run.progress.done < run.progress.total):
            raise JobStoppedError("stopped; the same command resumes it", is_cancelled=False)

    def is_unsealed(self, point: Point) -> bool:
        """Whether protection changed while the backfill ran, and nothing has sealed its earlier writes
        since."""
        newest = self._archive.flow.newest()
        if newest is None:
            return False
        store = self._context.resources(notes=False).store
        sealed = sealed_by(self._context.runner, self.target, store)
        return (point.get("protection") if sealed is None else sealed) != protection_of(newest.snapshot)


def prepare(
    parameters: BackfillParameters,
    context: JobContext,
    on_start: Callable[[Run], None] = lambda _: None,
    on_batch: Callable[[BatchReport], None] = lambda _: None,
) -> Backfill | None:
    """The job; None where there is no file or message. `on_start` and `on_batch` as of `Backfill`. Raises ConfigError."""
    if parameters.archive is not None:
        archive = find_archive(context, parameters.source, parameters.archive)
    elif parameters.since is not None:
        archive = find_messages(context, parameters.source, parameters.since, parameters.until)
    else:
        raise ConfigError("give the path of an archive, or --since for messages of topics")
    return Backfill(parameters, context, archive, on_start, on_batch) if archive.files else None


def _counted(run: Run, report: BatchReport) -> dict[str, Any]:
    """Count a micro-batch; one that is retried after a crash counts once. Returns the point behind it."""
    point, progress, counts = run.point, run.progress, report.counts
    if _query(report.batch) != _query(point.get("batch", report.batch)):
        # Counts of another checkpoint are void.
        progress.done, progress.counts = 0, Counter()
    elif report.batch == point.get("batch"):
        progress.counts = Counter(point["before"])
        progress.done = progress.counts.pop("files", 0)
    before = {"files": progress.done, **progress.counts}
    progress.done += counts.files if progress.unit == "file" else counts.events
    progress.counts.update(
        events=counts.events,
        written=counts.written,
        dead_letters=counts.dead_letter_count(),
        conflicts=counts.conflicts,
    )
    return {"protection": point["protection"], "batch": report.batch, "before": before}


def _query(batch: str) -> str:
    return batch.rpartition("/")[0]


BACKFILL = JobType(
    "takes an archive of a source's files, or messages of its topics",
    "idgraph backfill",
    BackfillParameters,
    prepare,
)
