"""One micro-batch: a snapshot is pinned, one Spark job runs the stages, and what the tasks report is settled.

The snapshot is broadcast when its version changed. A job that failed runs again while that may help.
"""

from __future__ import annotations

import io
import logging
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pyarrow as pa
from pyspark import RDD
from pyspark.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.functions import vectorized_udf  # type: ignore[attr-defined] # its stub leaves it out
from pyspark.util import PythonEvalType

from idgraph.model.backoff import Backoff
from idgraph.model.dead_letters import DeadLetters
from idgraph.model.errors import FlowStoppedError, IdgraphError, StoreError, UnreadableRecordError
from idgraph.model.flows import HeldSources, SourceHold, specs_for
from idgraph.model.snapshots import PinnedSnapshot
from idgraph.model.sources import DeadLetterLimits, FlowConfig, SourceConfig
from ingestion.metadata.follower import SnapshotFollower
from ingestion.metadata.schema_buffer import SchemaBuffer
from ingestion.sources.stream import InputStream
from ingestion.spark.sent_snapshots import BatchPins, SnapshotSender
from ingestion.spark.shuffle_blocks import ROW_SCHEMA, decode_reports
from ingestion.spark.tasks import commit_task, map_task, quick_row_task, quick_task
from ingestion.spark.worker_errors import error_of_spark, is_of_spark, may_pass_again
from ingestion.spark.worker_process import BatchOrder
from ingestion.spark.workers import WorkerPlan
from ingestion.stages.dead_letters import BatchAttempt
from ingestion.stages.orphaned_keys import OrphanedKeys
from ingestion.stages.outcomes import BatchReport, StageReport

log = logging.getLogger(__name__)

BATCH_PAUSE_SECONDS = 1.0
LONGEST_BATCH_PAUSE_SECONDS = 30.0
"""Before a micro-batch that failed is retried: a random time up to the first, doubled each time."""


NO_SOURCE = ""
"""The source of dead letters that hold the changes of several events to a fragment, or a file of no source."""


class DeadLetterGuard:
    """Looks at the latest micro-batches that together hold about `window` events of a source."""

    def __init__(self, limits: DeadLetterLimits) -> None:
        self._limits = limits
        self._batches: dict[str, deque[tuple[int, int]]] = {}

    def check(self, report: StageReport) -> dict[str, str]:
        """The sources with a share of dead letters above the limit, each with its message. The share of
        `NO_SOURCE` is that of all events."""
        found = {}
        for source in {*report.sources, *report.dead_of}:
            reasons = report.dead_of.get(source, {})
            events = report.events if source == NO_SOURCE else report.sources.get(source, 0)
            dead_letters = sum(reasons.values())
            if source == NO_SOURCE and not dead_letters and source not in self._batches:
                continue
            batches = self._batches.setdefault(source, deque())
            batches.append((events, dead_letters))
            while sum(count for count, _ in list(batches)[1:]) >= self._limits.window:
                batches.popleft()
            total, dead = (sum(column) for column in zip(*batches, strict=True))
            if dead >= self._limits.minimum and dead > self._limits.max_rate * total:
                worst = max(reasons, key=lambda reason: reasons[reason], default="earlier batches")
                found[source] = (
                    f"{dead} of the latest {total} events became dead letters, more than the allowed share of "
                    f"{self._limits.max_rate:g} (most in this batch: {worst})"
                )
        return found

    def forget(self, source: str) -> None:
        """A source that is tried again begins anew."""
        self._batches.pop(source, None)


class MicroBatches:
    """Takes the micro-batches of one flow, one after the other."""

    def __init__(
        self,
        config: FlowConfig,
        stream: InputStream,
        runner: MicroBatchRunner,
        pins: BatchPins,
        snapshots: SnapshotFollower,
        schema: SchemaBuffer,
        dead_letters: DeadLetters,
        orphaned_keys: OrphanedKeys,
        held: HeldSources,
        sources: Mapping[str, SourceConfig],
        on_commit: Callable[[], None] = lambda: None,
    ) -> None:
        """`on_commit` is called when a job has ended, whatever it has committed, and returns at once."""
        self._stream = stream
        self._runner = runner
        self._pins = pins
        self._snapshots = snapshots
        self._schema = schema
        self._dead_letters = dead_letters
        self._orphaned_keys = orphaned_keys
        self._on_commit = on_commit
        self._held = held
        self._sources = sources
        self._guard = DeadLetterGuard(config.dead_letters)
        self._looked_at = ""
        self._backoff = Backoff(config.batch_retries, BATCH_PAUSE_SECONDS, LONGEST_BATCH_PAUSE_SECONDS)

    def run(self, rows: DataFrame, number: int, batch: str, stop: threading.Event) -> BatchReport:
        """Run micro-batch `number`, named `batch`, to its end. A source with too many dead letters waits from then on; raises
        FlowStoppedError when no other source is left, and the error of the last attempt when all failed or `stop` was set."""
        is_again = self._pins.has_begun(batch)
        pinned = self._pins.pin(batch, self._snapshots.in_force())
        for attempted in range(self._backoff.retries + 1):
            attempt = BatchAttempt(batch, uuid.uuid4().hex, is_again or attempted > 0)
            is_last = attempted == self._backoff.retries
            try:
                try:
                    tasks, counts = self._run_job(rows, number, attempt, pinned, is_last)
                finally:
                    # Some tasks of a job that failed may have committed.
                    self._on_commit()
                self._take_over(counts)
            except IdgraphError as error:
                if is_last or not may_pass_again(error) or stop.is_set():
                    raise
                log.warning("a micro-batch failed and is retried: %s", error)
                if stop.wait(self._backoff.pause(attempted)):
                    raise
            else:
                self._settle(counts, number, attempt, pinned)
                return BatchReport(number, 0.0, pinned.snapshot.version, tasks, counts, attempted + 1, batch)
        raise AssertionError("unreachable")

    def unfinished(self) -> str | None:
        """The ETag of the snapshot of a micro-batch that Spark will give again, if there is one."""
        return self._pins.unfinished()

    def close(self) -> None:
        """Forget what the workers were given."""
        self._runner.close()

    def _run_job(
        self, rows: DataFrame, number: int, attempt: BatchAttempt, pinned: PinnedSnapshot, is_last: bool
    ) -> tuple[int, StageReport]:
        try:
            tasks, counts = self._runner.run(rows, attempt, pinned, is_last)
        except UnreadableRecordError:
            other = self._stream.in_other_tasks(number)
            if other is None:
                raise
        else:
            is_whole = self._stream.is_whole(number, counts.files)
            other = None if is_whole else self._stream.in_other_tasks(number)
            if other is None:
                return tasks, counts
        # A part of it is done twice, which changes nothing.
        return self._runner.run(other, attempt._replace(is_again=True), pinned, is_last)

    def _take_over(self, counts: StageReport) -> None:
        """Erase keys of refused fragments, which the report does not keep."""
        # All of the micro-batch is committed or a dead letter by now.
        self._compact_after(self._orphaned_keys.erase(counts.refused))
        counts.refused.clear()

    def follow_specs(self) -> None:
        """Let sources that wait be tried again when other specs are in force for them."""
        pinned = self._snapshots.current()
        if pinned.etag != self._looked_at:
            self._looked_at = pinned.etag
            for source in self._held.follow(pinned.snapshot, self._sources):
                log.warning("source %s is tried again: its mapping specs have changed", source)

    def _settle(
        self, counts: StageReport, number: int, attempt: BatchAttempt, pinned: PinnedSnapshot
    ) -> None:
        self._schema.follow(pinned)
        self._schema.add(counts.schema_changes())
        # First: where such a source fails again, the new hold takes the place of the one that names these dead letters.
        self._settle_holds(counts, attempt)
        self._judge(counts, number, attempt, pinned)
        dropped = self._dead_letters.settle_batch(attempt.batch, attempt.attempt)
        self._compact_after(self._orphaned_keys.erase_of_dead_letters(dropped))

    def _settle_holds(self, counts: StageReport, attempt: BatchAttempt) -> None:
        """Sources that are tried again have the records of the micro-batch that they failed in read again: those that
        fail again are other dead letters."""
        for source, hold in list(self._held.tried_again.items()):
            if counts.sources.get(source):
                dropped = self._dead_letters.settle_batch(hold.batch_name, attempt.attempt, source)
                self._compact_after(self._orphaned_keys.erase_of_dead_letters(dropped))
                self._held.was_taken(source)

    def _judge(self, counts: StageReport, number: int, attempt: BatchAttempt, pinned: PinnedSnapshot) -> None:
        """Let sources with too many dead letters wait. Raises FlowStoppedError where nothing else would flow on."""
        over = self._guard.check(counts)
        if not over:
            return
        active = self._stream.active()
        is_held = over.keys() < active and all(map(self._stream.can_leave_out, over))
        if not is_held:
            self._pins.unpin()
            said = "; ".join(f"source {source}: {why}" if source else why for source, why in over.items())
            raise FlowStoppedError(
                f"{said}. The micro-batch is not marked done and will be read again. See `idgraph dead-letters list`, "
                "repair the cause, then run again"
            )
        for source, why in over.items():
            self._hold(source, why, number, attempt, pinned)

    def _hold(
        self, source: str, why: str, number: int, attempt: BatchAttempt, pinned: PinnedSnapshot
    ) -> None:
        specs = specs_for(pinned.snapshot, self._sources[source])
        hold = SourceHold(
            source=source,
            why=why if specs else f"{why}; no mapping spec is in force for it",
            at_ms=time.time_ns() // 1_000_000,
            batch=number,
            batch_name=attempt.batch,
            specs=specs,
            offsets=self._stream.offsets_before(number, source),
        )
        self._held.hold(hold)
        self._guard.forget(source)
        # A snapshot that came during the micro-batch may have other specs already.
        self._looked_at = ""
        log.error(
            "source %s waits, the others flow on: %s. Its part of the micro-batch will be read again. See `idgraph dead-letters "
            "list`; it is tried again when its specs change, or by `idgraph flows resume FLOW --source %s`",
            source,
            hold.why,
            source,
        )

    def _compact_after(self, erased: int) -> None:
        if erased:
            try:
                self._orphaned_keys.compact()
            except StoreError as error:
                log.warning("ids of erased data keys may stand in free pages of their file: %s", error)


SPLITS_A_TASK = 16
"""A large task sees more events of a fragment, which it combines before the shuffle."""


class MicroBatchRunner:
    """Runs micro-batches of one flow. Not safe for several threads."""

    def __init__(
        self, session: SparkSession, plan: WorkerPlan, without_secrets: Callable[[str], str]
    ) -> None:
        self._session = session
        self._plan = plan
        self._without_secrets = without_secrets
        self._snapshots = SnapshotSender(self._broadcast)

    def run(
        self, batch: DataFrame, attempt: BatchAttempt, pinned: PinnedSnapshot, is_last: bool
    ) -> tuple[int, StageReport]:
        """Gives the number of map tasks, and what all tasks reported. `is_last`
        says that this is the last attempt at it.

        Raises the error of ours that a worker raised, or FlowStoppedError for what Spark itself said.
        """
        try:
            order = BatchOrder(attempt, self._snapshots.sent(pinned), is_last)
            rows = batch.rdd
            tasks = rows.getNumPartitions()
            if tasks <= 1 and self._plan.flow.strategy != "high_throughput":
                return tasks, decode_reports(collected(rows.mapPartitions(quick_row_task(self._plan, order))))
            reports = collected(self._stages(batch, tasks, order).rdd)
            return tasks, decode_reports(row.body for row in reports)
        except Exception as error:
            if not is_of_spark(error):
                raise
            raise error_of_spark(error, self._without_secrets) from None

    def close(self) -> None:
        """Forget what the workers were given."""
        self._snapshots.close()

    def _broadcast(self, content: bytes) -> Broadcast[bytes]:
        return self._session.sparkContext.broadcast(content)

    def _stages(self, batch: DataFrame, tasks: int, order: BatchOrder) -> DataFrame:
        plan = self._plan
        if tasks <= 1 or plan.flow.strategy == "low_latency":
            return map_in_arrow(batch, quick_task(plan, order))
        fewer = batch.coalesce(_fewer(tasks, self._session.sparkContext.defaultParallelism))
        mapped = map_in_arrow(fewer, map_task(plan, order))
        return map_in_arrow(mapped.repartitionById(plan.flow.partitions, "part"), commit_task(plan, order))


def map_in_arrow(
    rows: DataFrame,
    task: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: str = ROW_SCHEMA,
) -> DataFrame:
    """`rows.mapInArrow(task, schema)` without its demand for pandas, which nothing on the way of Arrow batches uses."""
    function = vectorized_udf(task, schema, PythonEvalType.SQL_MAP_ARROW_ITER_UDF)
    column = function(*[rows[name] for name in rows.columns])
    mapped = rows._jdf.mapInArrow(column._jc, False, rows._build_java_profile(None))
    return DataFrame(mapped, rows.sparkSession)


def collected(rows: RDD[Any]) -> Iterator[Any]:
    """The rows of `rows.collect()`, but not by a socket, of which the JVM would remember the name as long as it lives, to remove
    it at the end, for each micro-batch."""
    for some in rows._jrdd.collect():
        framed = io.BytesIO(len(some).to_bytes(4, "big") + some)
        yield from rows._jrdd_deserializer.load_stream(framed)


def _fewer(splits: int, cores: int) -> int:
    """The number of map tasks for so many splits: enough for all cores, of at most `SPLITS_A_TASK` each."""
    rounds = -(-splits // (SPLITS_A_TASK * cores))
    return min(splits, rounds * cores)
