"""The projection in tasks: executors list the outbox, read, resolve, write to the index and settle.

Each task has a share of the fragments; counts and refused ids come back. Spark repeats the share of a lost
executor, which changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from idgraph.model.snapshots import PinnedSnapshot
from idgraph.model.store import MOST_SHARES, OutboxShare
from idgraph.projection.parts import Projected, Work
from idgraph.projection.projection import Projection
from ingestion.spark.micro_batch import collected
from ingestion.spark.sent_snapshots import SentSnapshot, SnapshotSender
from ingestion.spark.session import Session, unless_gone
from ingestion.spark.worker_errors import error_of_spark, is_of_spark
from ingestion.spark.worker_process import only_our_errors, projection
from ingestion.spark.workers import WorkerPlan

T = TypeVar("T")

AT_ONCE = 2000
"""Fragments per task that looks through all."""
FEW = 250
"""After a sweep of fewer fragments the next one is a single task."""
TASK_SECONDS = 5.0
"""A task goes on for so long while its share has entries. The work of a lost one is done again."""
POOL = "projection"
"""The fair scheduler gives its jobs and the flow's an equal share of the executors."""


class ProjectionTasks:
    """`Tasks` of a Spark session, within `on`. One per thread."""

    def __init__(
        self, plan: WorkerPlan, newest: Callable[[], PinnedSnapshot], is_streaming: Callable[[], bool]
    ) -> None:
        """While `is_streaming`, one core is left to the stream: a task that waits for a slow index holds up no
        micro-batch."""
        self._plan = plan
        self._newest = newest
        self._is_streaming = is_streaming
        self._is_busy = False

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
        return AT_ONCE * self._tasks()

    def _tasks(self) -> int:
        cores: int = self._context.defaultParallelism
        return max(1, cores - 1 if self._is_streaming() else cores)

    def sweep(self, waiting: Mapping[str, int]) -> Projected:
        """As of `Tasks`."""
        of = min(self._tasks(), MOST_SHARES) if self._is_busy else 1
        total = self._run(
            [OutboxShare(number, of) for number in range(of)], partial(_share, dict(waiting)), True
        )
        self._is_busy = not total.is_whole or total.projected >= FEW
        return total

    def follow(self, work: Work, ids: Sequence[str]) -> Projected:
        """As of `Tasks`."""
        # Neighbours stay together: many a store lists fragments of one person side by side.
        size = -(-len(ids) // self._tasks())
        parts = [list(ids[begin : begin + size]) for begin in range(0, len(ids), size)]
        return self._run(parts, partial(_follow, work), False)

    def _run(
        self, parts: Sequence[T], does: Callable[[Projection, T], Projected], is_sweep: bool
    ) -> Projected:
        total = Projected()
        try:
            # Of the thread: Spark has no other way.
            self._context.setLocalProperty("spark.scheduler.pool", POOL)
            sent = self._snapshots.sent(self._newest())
            rows = self._context.parallelize(parts, len(parts))
            task = partial(_task, self._plan, sent, does, is_sweep)
            for each in collected(rows.mapPartitions(task)):
                total.add(each)
                total.is_whole &= each.is_whole
        except Exception as error:
            if not is_of_spark(error):
                raise
            raise error_of_spark(error, lambda text: text) from None
        return total


def _share(waiting: Mapping[str, int], projection: Projection, share: OutboxShare) -> Projected:
    return projection.share(share, waiting, TASK_SECONDS)


def _follow(work: Work, projection: Projection, ids: Sequence[str]) -> Projected:
    return projection.follow(work, ids)


@only_our_errors
def _task(
    plan: WorkerPlan,
    sent: SentSnapshot,
    does: Callable[[Projection, T], Projected],
    is_sweep: bool,
    parts: Iterable[T],
) -> Iterator[Projected]:
    for part in parts:
        yield does(projection(plan, sent, is_kept=is_sweep), part)
