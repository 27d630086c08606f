"""One micro-batch as one Spark job: the snapshot broadcast when it is another one, the stages run, the tasks'
reports added up. Spark is the shell: what happens to an event is in the stages, which know nothing of it."""

from __future__ import annotations

from collections.abc import Callable

from pyspark.broadcast import Broadcast
from pyspark.sql import DataFrame, SparkSession

from ingestion.outcomes import StageReport
from ingestion.parcels import ROW_SCHEMA, decode_reports
from ingestion.sent_snapshots import SnapshotSender
from ingestion.set_aside import BatchAttempt
from ingestion.snapshot_file import PinnedSnapshot
from ingestion.tasks import commit_task, map_task, quick_task, whole_task
from ingestion.worker_errors import error_of_worker, is_of_spark
from ingestion.worker_process import BatchOrder
from ingestion.workers import WorkerPlan

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
            # There is no public way to ask a DataFrame for its number of tasks that does not plan it anew.
            tasks = batch._jdf.queryExecution().toRdd().getNumPartitions()
            rows = self._stages(batch, tasks, order)
            return tasks, decode_reports(rows.toArrow().column("body").to_pylist())
        except Exception as error:
            if not is_of_spark(error):
                raise
            raise error_of_worker(self._without_secrets(str(error))) from None

    def close(self) -> None:
        """Forget what the workers were given."""
        self._snapshots.close()

    def _broadcast(self, content: bytes) -> Broadcast[bytes]:
        return self._session.sparkContext.broadcast(content)

    def _stages(self, batch: DataFrame, tasks: int, order: BatchOrder) -> DataFrame:
        plan, strategy = self._plan, self._plan.flow.strategy
        if strategy == "low_latency" or (strategy == "adaptive" and tasks <= 1):
            return batch.mapInArrow(quick_task(plan, order), ROW_SCHEMA)
        if tasks <= 1:
            return batch.mapInArrow(whole_task(plan, order), ROW_SCHEMA)
        return (
            batch.coalesce(_fewer(tasks, self._session.sparkContext.defaultParallelism))
            .mapInArrow(map_task(plan, order), ROW_SCHEMA)
            .repartitionById(plan.flow.partitions, "part")
            .mapInArrow(commit_task(plan, order), ROW_SCHEMA)
        )


def _fewer(splits: int, cores: int) -> int:
    """How many map tasks take so many splits: enough for all cores, of at most `SPLITS_A_TASK` each."""
    rounds = -(-splits // (SPLITS_A_TASK * cores))
    return min(splits, rounds * cores)
