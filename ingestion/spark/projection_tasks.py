"""The projection in tasks: the driver lists ids, executors read, resolve, write to the index and settle.

Nothing but counts and refused ids come back. A lost executor has its part repeated by Spark, which changes nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from idgraph.projection.parts import Projected, Work
from idgraph.snapshot_file import PinnedSnapshot
from ingestion.spark.micro_batch import collected
from ingestion.spark.sent_snapshots import SentSnapshot, SnapshotSender
from ingestion.spark.session import Session, unless_gone
from ingestion.spark.worker_errors import error_of_spark, is_of_spark
from ingestion.spark.worker_process import only_our_errors, projection
from ingestion.spark.workers import WorkerPlan

PART = 2000
"""Fragments per task: Spark's own work for it is a few microseconds of CPU per fragment then."""
LEAST = 250
"""Fewer fragments are not worth another task."""
POOL = "projection"
"""The fair scheduler gives its jobs and the flow's an equal share of the executors."""


class ProjectionTasks:
    """`Tasks` of a Spark session, within `on`. One per thread."""

    def __init__(
        self, plan: WorkerPlan, newest: Callable[[], PinnedSnapshot], is_streaming: Callable[[], bool]
    ) -> None:
        """While `is_streaming`, one core is left to the stream: a part that waits for a slow index holds up no micro-batch."""
        self._plan = plan
        self._newest = newest
        self._is_streaming = is_streaming

    @contextmanager
    def on(self, session: Session) -> Iterator[None]:
        """Run tasks on the executors of this session."""
        self._context = session.sparkContext
        self._snapshots = SnapshotSender(self._context.broadcast)
        try:
            yield
        finally:
            with unless_gone():
                self._snapshots.close()

    @property
    def at_once(self) -> int:
        """As of `Tasks`."""
        return PART * self._tasks()

    def _tasks(self) -> int:
        cores: int = self._context.defaultParallelism
        return max(1, cores - 1 if self._is_streaming() else cores)

    def run(self, work: Work, ids: Sequence[str]) -> Projected:
        """As `Tasks.run`."""
        # Neighbours stay together: many a store lists fragments of one person side by side.
        size = max(LEAST, -(-len(ids) // self._tasks()))
        parts = [list(ids[begin : begin + size]) for begin in range(0, len(ids), size)]
        total = Projected()
        try:
            # Of the thread: Spark has no other way.
            self._context.setLocalProperty("spark.scheduler.pool", POOL)
            sent = self._snapshots.sent(self._newest())
            rows = self._context.parallelize(parts, len(parts))
            for each in collected(rows.mapPartitions(functools.partial(_run, self._plan, sent, work))):
                total.add(each)
        except Exception as error:
            if not is_of_spark(error):
                raise
            raise error_of_spark(error, lambda text: text) from None
        return total


@only_our_errors
def _run(
    plan: WorkerPlan, sent: SentSnapshot, work: Work, parts: Iterable[Sequence[str]]
) -> Iterator[Projected]:
    for part in parts:
        yield projection(plan, sent, is_kept=work is Work.PROJECT).part(work, part)
