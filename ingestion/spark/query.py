"""A flow: one Structured Streaming query over its sources.

Spark is the shell: what happens to an event is in the stages, which know nothing of Spark.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from idgraph.model.errors import (
    FlowInterruptedError,
    FlowStoppedError,
    IdgraphError,
    JavaLostError,
    SparkStoppedError,
    WorkerInterruptedError,
    WorkerLostError,
)
from idgraph.model.flows import HeldSources
from idgraph.model.sources import FlowConfig
from ingestion.sources.stream import InputStream, Intake, Throttle
from ingestion.spark.micro_batch import MicroBatches
from ingestion.spark.session import unless_gone, was_java_asked_to_end
from ingestion.spark.worker_errors import error_of_spark, is_of_spark, stopped_by_spark
from ingestion.stages.outcomes import BatchReport

log = logging.getLogger(__name__)

# The time for which a stop waits until Spark has noted a finished micro-batch. Not noted, it is only done once
# more.
COMMIT_SECONDS = 10.0

QUIET_SECONDS = 0.5
"""A flow rests when it has had no micro-batch for so long."""
AWAKE_SECONDS = 2.0
"""It rests again so long after traces of input, if they were of none: a busy machine takes its time to look."""
AWAIT_SECONDS = 0.2
"""Between two looks at what else changes a query: holds of sources, specs, its bound."""

LOOK_SECONDS = 0.05
"""Between two looks at the traces of input: the most that a rest delays an event."""
ACQUIRE_SECONDS = 0.002
"""Between two looks whether the query waits for its lock."""

_WAITING = "Waiting for"
"""So begins what Spark says of a query that has looked for input: `data to arrive`, `next trigger`."""

PAUSE_SECONDS = 0.1
"""So often a paused flow looks whether it may go on."""

JAVA_END_SECONDS = 20.0
"""The longest time that Spark's Java process takes to end after it was asked to: half a second, on a machine that has
read none of it yet more than five."""


class Flow:
    """Runs one flow once: its query begins, continues and ends here. `MicroBatches` takes each micro-batch."""

    def __init__(
        self,
        session: SparkSession,
        config: FlowConfig,
        stream: InputStream,
        checkpoint: Path,
        batches: MicroBatches,
        on_batch: Callable[[BatchReport], None],
        held: HeldSources,
        is_paused: Callable[[], bool] = lambda: False,
    ) -> None:
        """`is_paused` is asked before each micro-batch: while it holds, none begins."""
        self._session = session
        self._config = config
        self._stream = stream
        self._checkpoint = checkpoint
        self._batches = batches
        self._on_batch = on_batch
        self._held = held
        self._is_paused = is_paused
        self._query_id: Future[str] = Future()
        self._failure: IdgraphError | None = None
        self._in_batch = threading.Lock()
        self._stop = threading.Event()
        self._throttle = Throttle(None)
        self._stopping = False
        self._last_batch = -1
        self._rest: Rest | None = None
        self._busy_until = 0.0
        self._has_begun = False
        self._behind_since: float | None = None

    def run(self, stop: threading.Event, intake: Intake) -> None:
        """Blocks until `stop` is set, or with `until_done` until all that is there at the start is done.
        A micro-batch that is in progress when `stop` is set is finished first. Runs once.

        Raises what stopped the flow: FlowStoppedError for too many dead letters, StoreError and others of
        the error tree when a sink failed. In every case, running again continues where it stopped.
        """
        query = None
        self._stop, self._throttle = stop, Throttle(intake.rate)
        try:
            self._batches.follow_specs()
            query = self._start(intake)
            while not stop.is_set() and not self._has_ended(query, stop):
                self._has_begun = self._has_begun or query.status["message"].startswith(_WAITING)
                self._batches.follow_specs()
                if self._held.has_changed() or (not intake.until_done and self._stream.is_bound_otherwise()):
                    query = self._started_again(query, intake)
            self._let_end(query)
            if self._failure is not None:
                raise self._failure
        except Exception as error:
            failure = error
            if is_of_spark(error):
                failure = self._failure or error_of_spark(error, self._stream.without_secrets)
            if self._is_interruption(failure):
                raise FlowInterruptedError(
                    "Spark's processes ended with it: this micro-batch is taken up by the next run"
                ) from None
            if failure is error:
                raise
            raise failure from None
        finally:
            if query is not None:
                with unless_gone():
                    self._end_rest()
                with unless_gone():
                    query.stop()
            self._stream.close()
            with unless_gone():
                self._batches.close()

    def _is_interruption(self, failure: Exception) -> bool:
        """Whether the flow was asked to stop by a signal that went to Spark's processes, too: their last errors may
        be anything. An error of the flow itself counts."""
        if not self._stop.is_set():
            return False
        if isinstance(failure, WorkerInterruptedError):
            return True
        return isinstance(
            failure, (SparkStoppedError, WorkerLostError, JavaLostError)
        ) and was_java_asked_to_end(self._session, JAVA_END_SECONDS)

    def is_running(self) -> bool:
        """Whether events are taken, and no stop was asked for. For any thread."""
        return self._query_id.done() and not self._stop.is_set() and self._failure is None

    def is_ready(self) -> bool:
        """Whether it also has done a micro-batch, or has looked and found no input, or is paused. For any thread."""
        return self.is_running() and self._has_begun

    def lag_seconds(self) -> float:
        """Seconds since when there is input that is not readable yet; 0 if there is none, as far as it has looked. For any thread."""
        since = self._behind_since
        return 0.0 if since is None else time.monotonic() - since

    def heap_bytes(self) -> tuple[int, int]:
        """The bytes of Java's heap: used, and at most. For any thread. Raises SparkStoppedError when Java is gone."""
        try:
            runtime = self._session._jvm.java.lang.Runtime.getRuntime()
            return runtime.totalMemory() - runtime.freeMemory(), runtime.maxMemory()
        except Exception as error:
            raise SparkStoppedError(
                f"Java does not say what its heap holds ({type(error).__name__})"
            ) from None

    def is_past(self, etag: str) -> bool:
        """Whether no micro-batch under another snapshot than the present one, of this ETag, can come any more.
        Waits for the micro-batch that is in progress. For another thread than that of `run`."""
        with self._in_batch:
            return self._batches.unfinished() in (None, etag)

    def _has_ended(self, query: StreamingQuery, stop: threading.Event) -> bool:
        """Waits for a moment. Raises what ended the query."""
        if self._rest is None or not self._is_quiet():
            self._end_rest()
            return query.awaitTermination(AWAIT_SECONDS) is True
        seconds = AWAIT_SECONDS if self._held.waiting else self._stream.look_seconds
        if not self._rest.wait(seconds, lambda: not self._is_quiet(), stop):
            self._busy_until = max(self._busy_until, time.monotonic() + AWAKE_SECONDS)
        return query.awaitTermination(0.001) is True

    def _is_quiet(self) -> bool:
        return time.monotonic() > self._busy_until and not self._in_batch.locked()

    def _stay_awake(self) -> None:
        self._busy_until = time.monotonic() + QUIET_SECONDS

    def _end_rest(self) -> None:
        if self._rest is not None:
            self._rest.end()

    def _let_end(self, query: StreamingQuery) -> None:
        """Let the micro-batch end and no other begin: Spark's own stop would break it off."""
        self._end_rest()
        with self._in_batch:
            self._stopping = True
        self._await_commit(query)

    def _started_again(self, query: StreamingQuery, intake: Intake) -> StreamingQuery:
        """The query with the sources and the bound that its stream has now: Spark reads them only at the start."""
        self._let_end(query)
        query.stop()
        if self._failure is not None:
            raise self._failure
        # The work of the first query is noted; the next has no progress yet.
        self._stopping, self._last_batch = False, -1
        return self._start(intake)

    def _start(self, intake: Intake) -> StreamingQuery:
        rows = self._stream.load(self._session, intake)
        writer = rows.writeStream.foreachBatch(self._process).queryName(self._config.name)
        writer = writer.option("checkpointLocation", str(self._checkpoint))
        if intake.until_done:
            writer = writer.trigger(availableNow=True)
        else:
            writer = writer.trigger(
                processingTime=f"{round(self._config.trigger_seconds * 1000)} milliseconds"
            )
        query = writer.start()
        self._stay_awake()
        seconds = self._stream.look_seconds
        # A trigger may look as rarely anyway.
        if not intake.until_done and self._config.trigger_seconds < seconds:
            self._rest = resting(query, self._stream.traces, seconds)
        if not self._query_id.done():
            # The checkpoint's, whichever run of the query it is.
            self._query_id.set_result(str(query.id))
        return query

    def _process(self, rows: DataFrame, number: int) -> None:
        # Before the lock, which a stop waits for.
        self._throttle.wait(self._stop)
        self._behind_since = self._behind_since or time.monotonic()
        while (self._is_paused() or self._held.is_new()) and not self._stopping:
            # The input of the micro-batch is noted, and nothing of it is done: this run or the next one begins
            # it, or the query without a source that is to wait.
            self._has_begun = True
            time.sleep(PAUSE_SECONDS)
        with self._in_batch:
            if self._stopping:
                # To return would mark the batch done.
                raise FlowStoppedError("stopping")
            try:
                self._run_batch(self._stream.in_tasks(rows, number), number)
                self._last_batch = number
                self._stay_awake()
            except Exception as error:
                # Spark hands only a text on, and that to nobody once a stop was asked for; the caller of `run` wants the error.
                self._failure = self._as_our_error(error)
                raise

    def _as_our_error(self, error: Exception) -> IdgraphError:
        if isinstance(error, IdgraphError):
            return error
        if is_of_spark(error):
            return error_of_spark(error, self._stream.without_secrets)
        log.debug("a micro-batch broke off", exc_info=error)
        return stopped_by_spark(f"{type(error).__name__}: {error}")

    def _run_batch(self, rows: DataFrame, number: int) -> None:
        started = time.monotonic()
        # The query's id keeps the batches of two checkpoints of one flow apart.
        batch = f"{self._config.name}/{self._query_id.result()}/{number}"
        report = self._batches.run(rows, number, batch, self._stop)
        events = report.counts.events
        self._throttle.took(events, started)
        seconds = time.monotonic() - started
        lag = self._stream.took(number, events, seconds)
        self._has_begun = True
        if not self._stream.is_full(number):
            self._behind_since = None
        self._on_batch(report._replace(seconds=seconds, lag=lag))

    def _await_commit(self, query: StreamingQuery) -> None:
        """Spark writes that a micro-batch is done after `_process` returned, and reports progress after
        that. To stop it in between would have the next run do the whole micro-batch again."""
        deadline = time.monotonic() + COMMIT_SECONDS
        while self._last_batch >= 0 and query.isActive and time.monotonic() < deadline:
            progress = query.lastProgress
            if progress is not None and progress["batchId"] >= self._last_batch:
                return
            time.sleep(0.02)


class Rest:
    """A query without input rests (docs/adr/0057-rest.md).

    Spark looks for input a hundred times a second. While a rest is on, it looks only every `seconds`. A rest ends when
    `traces` are others than before. It is on while this has the lock that the query looks under. For one thread.
    """

    def __init__(self, lock: Any, traces: Callable[[], object], seconds: float) -> None:
        """`lock` is Java's."""
        self._lock = lock
        self._traces = traces
        self._seconds = seconds
        self._is_on = False
        self._seen: object = None
        self._looked = 0.0

    def wait(self, seconds: float, is_over: Callable[[], bool], stop: threading.Event) -> bool:
        """Begin the rest, or go on with it, for so many seconds. It ends when `is_over`, and the wait when `stop` is set.
        Whether there are no traces of input."""
        ends = time.monotonic() + seconds
        if not self._is_on:
            self._seen = self._traces()
            self._take_lock()
            # What came before these traces may have been missed by the last look.
            self._let_look()
        while not is_over() and self._traces() == self._seen:
            if stop.wait(LOOK_SECONDS):
                return True
            now = time.monotonic()
            if now - self._looked >= self._seconds:
                self._let_look()
            if now >= ends:
                return True
        self.end()
        return False

    def end(self) -> None:
        """The query looks for input as often as Spark does. It must not be stopped before."""
        if self._is_on:
            self._is_on = False
            self._lock.unlock()

    def _take_lock(self) -> None:
        self._lock.lock()
        self._is_on = True

    def _let_look(self) -> None:
        """Let the query pass its lock twice: it looks under it, and reports under it that there was nothing."""
        for _ in range(2):
            self._await(LOOK_SECONDS, is_queued=True)
            self.end()
            self._await(self._seconds, is_queued=False)
            self._take_lock()
        self._looked = time.monotonic()

    def _await(self, seconds: float, *, is_queued: bool) -> None:
        ends = time.monotonic() + seconds
        while self._lock.hasQueuedThreads() != is_queued and time.monotonic() < ends:
            time.sleep(ACQUIRE_SECONDS)


def resting(query: StreamingQuery, traces: Callable[[], object], seconds: float) -> Rest | None:
    """The rest of a query; None where each call may reach another thread of Java (PYSPARK_PIN_THREAD=false): a lock is a
    thread's."""
    if os.environ.get("PYSPARK_PIN_THREAD", "true").lower() != "true":
        return None
    return Rest(query._jsq.streamingQuery().awaitProgressLock(), traces, seconds)
