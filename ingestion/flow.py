"""A flow: one Structured Streaming query from files to committed, indexed profiles.

Each micro-batch pins a snapshot, broadcasts it when its version changed, and runs one Spark job. Spark is
the shell: what happens to an event is in the stages, which know nothing of Spark.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import NamedTuple

from pyspark.broadcast import Broadcast
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from ingestion.dead_letter_guard import DeadLetterGuard
from ingestion.outcomes import StageReport
from ingestion.pins import BatchPins
from ingestion.schema_buffer import SchemaBuffer
from ingestion.set_aside import BatchAttempt
from ingestion.snapshots import SnapshotFollower
from ingestion.source_files import spark_path
from ingestion.tasks import (
    ROW_SCHEMA,
    BatchOrder,
    commit_task,
    decode_reports,
    map_task,
    whole_task,
)
from ingestion.worker_errors import error_of_worker, stopped_by_spark
from ingestion.workers import WorkerPlan
from model.dead_letters import DeadLetters
from model.errors import FlowStoppedError, IdgraphError

log = logging.getLogger(__name__)

# A large task sees more events of a fragment, which it combines before the shuffle.
SPLITS_A_TASK = 16

# How long a stop waits for Spark to note a finished micro-batch. Not noted, it is only done once more.
COMMIT_SECONDS = 10.0

# binaryFile reads a file's content only when that column is asked for; here Spark tells which files are
# new, remembers them in the checkpoint, and packs them into tasks by size.
_FILE_SCHEMA = "path string, modificationTime timestamp, length long, content binary"


class BatchReport(NamedTuple):
    """One finished micro-batch. `seconds` from its start to its end."""

    number: int
    seconds: float
    snapshot_version: int
    tasks: int
    counts: StageReport


class Flow:
    """Runs one flow once. `state` is its directory: checkpoint, journal, last snapshot."""

    def __init__(
        self,
        session: SparkSession,
        plan: WorkerPlan,
        state: Path,
        snapshots: SnapshotFollower,
        schema: SchemaBuffer,
        dead_letters: DeadLetters,
        on_batch: Callable[[BatchReport], None],
    ) -> None:
        self._session = session
        self._plan = plan
        self._state = state
        self._snapshots = snapshots
        self._schema = schema
        self._dead_letters = dead_letters
        self._on_batch = on_batch
        self._guard = DeadLetterGuard(plan.flow.dead_letters)
        self._broadcast: tuple[str, Broadcast[bytes]] | None = None
        self._query_id: Future[str] = Future()
        self._pins = BatchPins(state)
        self._failure: IdgraphError | None = None
        self._in_batch = threading.Lock()
        self._stopping = False
        self._last_batch = -1

    def run(self, stop: threading.Event, until_done: bool) -> None:
        """Blocks until `stop` is set, or with `until_done` until all files present at the start are done.
        A micro-batch that is under way when `stop` is set is finished first.

        Raises what stopped the flow: FlowStoppedError for too many dead letters, StoreError and others of
        the error tree when a sink failed. Whatever happened, running again goes on where it stopped.
        """
        query = None
        try:
            query = self._start(until_done)
            while not stop.is_set() and not query.awaitTermination(0.2):
                pass
            # Let the micro-batch end: Spark's own stop would break it off.
            with self._in_batch:
                self._stopping = True
            self._await_commit(query)
            if self._failure is not None:
                raise self._failure
        except PySparkException as error:
            raise self._failure or stopped_by_spark(str(error)) from None
        finally:
            if query is not None:
                query.stop()
            self._forget_broadcast()

    def is_past(self, etag: str) -> bool:
        """Whether no micro-batch under another snapshot than the present one, of this ETag, can come any more.
        Waits for the micro-batch that is under way. For another thread than that of `run`."""
        with self._in_batch:
            return self._pins.unfinished() in (None, etag)

    def _start(self, until_done: bool) -> StreamingQuery:
        flow = self._plan.flow
        files = (
            self._session.readStream.format("binaryFile")
            .schema(_FILE_SCHEMA)
            .option("maxFilesPerTrigger", flow.max_files_per_batch)
            # Without this a file whose modification time is a week older than the newest is ignored.
            .option("maxFileAge", "36500d")
            # Sub-directories belong to their source, and their names are no columns.
            .option("recursiveFileLookup", "true")
            .load(spark_path(self._plan.sources))
            .select("path")
        )
        writer = files.writeStream.foreachBatch(self._process).queryName(flow.name)
        writer = writer.option("checkpointLocation", str(self._state / "checkpoint"))
        if until_done:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(processingTime=f"{round(flow.trigger_seconds * 1000)} milliseconds")
        query = writer.start()
        self._query_id.set_result(str(query.id))
        return query

    def _process(self, files: DataFrame, number: int) -> None:
        with self._in_batch:
            if self._stopping:
                # To return would mark the batch done.
                raise FlowStoppedError("stopping")
            try:
                self._run_batch(files, number)
                self._last_batch = number
            except IdgraphError as error:
                # Spark hands only a text on; the caller of `run` wants the error.
                self._failure = error
                raise
            except PySparkException as error:
                self._failure = error_of_worker(str(error))
                raise self._failure from None

    def _run_batch(self, files: DataFrame, number: int) -> None:
        started = time.monotonic()
        # The query's id keeps the batches of two checkpoints of one flow apart.
        batch = BatchAttempt(f"{self._plan.flow.name}/{self._query_id.result()}/{number}", uuid.uuid4().hex)
        pinned = self._pins.pin(batch.batch, self._snapshots.current())
        order = BatchOrder(
            batch, pinned.etag, self._broadcast_of(pinned.etag, pinned.snapshot.model_dump_json)
        )
        # There is no public way to ask a DataFrame for its number of tasks that does not plan it anew.
        tasks = files._jdf.queryExecution().toRdd().getNumPartitions()
        if tasks <= 1:
            rows = files.mapInArrow(whole_task(self._plan, order), ROW_SCHEMA)
        else:
            rows = (
                files.coalesce(_fewer(tasks, self._session.sparkContext.defaultParallelism))
                .mapInArrow(map_task(self._plan, order), ROW_SCHEMA)
                .repartitionById(self._plan.flow.partitions, "part")
                .mapInArrow(commit_task(self._plan, order), ROW_SCHEMA)
            )
        counts = decode_reports(rows.toArrow().column("body").to_pylist())
        self._schema.follow(pinned)
        self._schema.add(counts.schema_changes())
        try:
            self._guard.check(counts)
        except FlowStoppedError:
            self._pins.unpin()
            raise
        self._dead_letters.settle_batch(batch.batch, batch.attempt)
        seconds = time.monotonic() - started
        self._on_batch(BatchReport(number, seconds, pinned.snapshot.version, tasks, counts))

    def _await_commit(self, query: StreamingQuery) -> None:
        """Spark writes that a micro-batch is done after `_process` returned, and reports progress after
        that. To stop it in between would have the next run do the whole micro-batch again."""
        deadline = time.monotonic() + COMMIT_SECONDS
        while self._last_batch >= 0 and query.isActive and time.monotonic() < deadline:
            progress = query.lastProgress
            if progress is not None and progress["batchId"] >= self._last_batch:
                return
            time.sleep(0.02)

    def _broadcast_of(self, etag: str, content: Callable[[], str]) -> Broadcast[bytes]:
        if self._broadcast is None or self._broadcast[0] != etag:
            self._forget_broadcast()
            self._broadcast = (etag, self._session.sparkContext.broadcast(content().encode()))
        return self._broadcast[1]

    def _forget_broadcast(self) -> None:
        if self._broadcast is not None:
            self._broadcast[1].unpersist()
            self._broadcast = None


def _fewer(splits: int, cores: int) -> int:
    """How many map tasks take so many splits: enough for all cores, of at most `SPLITS_A_TASK` each."""
    rounds = -(-splits // (SPLITS_A_TASK * cores))
    return min(splits, rounds * cores)
