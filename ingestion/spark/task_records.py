"""The records of a task's rows, by the kind of the flow's sources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import pyarrow as pa

from idgraph.model.dead_letters import DeadLetter
from idgraph.model.errors import FlowStoppedError
from idgraph.model.kafka import kafka_sources
from idgraph.model.sources import file_sources
from ingestion.sources.files.records import FileNames, FileRecords
from ingestion.sources.kafka.records import KafkaRecords
from ingestion.sources.stream import RecordReader, SparkRow
from ingestion.spark.workers import WorkerPlan, WorkerResources


def is_task_given_again() -> bool:
    """Whether Spark gives it again: an executor was lost under it."""
    # Here, so that the stages are loaded where there is no Spark.
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0


REPORTED_BYTES = 64 * 1024 * 1024
"""Of sealed records, that one task hands to the driver at most, whose memory they lie in until they are put."""


class TaskDeadLetters:
    """One task's. `put` writes into their store; None where the task has no way to it."""

    def __init__(self, put: Callable[[Sequence[DeadLetter]], None] | None) -> None:
        self._put = put
        self._bytes = 0
        self._reasons: Counter[str] = Counter()

    def left(self, dead_letters: list[DeadLetter]) -> list[DeadLetter]:
        """Put dead letters; gives those that only the driver can.

        Raises FlowStoppedError when what is left for the driver is too much for it, before it is on its way.
        """
        if self._put is None:
            self._count(dead_letters)
            return dead_letters
        if dead_letters:
            self._put(dead_letters)
        return []

    def _count(self, dead_letters: list[DeadLetter]) -> None:
        for dead_letter in dead_letters:
            self._bytes += len(dead_letter.payload)
            self._reasons[dead_letter.reason] += 1
        if self._bytes > REPORTED_BYTES:
            worst, _ = self._reasons.most_common(1)[0]
            raise FlowStoppedError(
                f"the dead letters of one task are more than {REPORTED_BYTES >> 20} MB, which the driver would have to "
                f"hold ({self._reasons.total()} so far, most: {worst}; none was put). The micro-batch is not marked "
                "done and will be read again. Mend the cause, or have it taken with a local `[flow] master`, then run "
                "again (docs/cluster.md)"
            )


def rows_of(batches: Iterable[pa.RecordBatch]) -> Iterator[SparkRow]:
    """The rows of Arrow batches."""
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def record_reader(
    plan: WorkerPlan, tools: WorkerResources, rows: Iterable[SparkRow], is_last: bool
) -> RecordReader:
    """What reads the rows of the flow's sources, which are all of one kind. `is_last`: these rows are not retried."""
    limit = plan.flow.max_event_bytes
    if topics := kafka_sources(plan.sources):
        return KafkaRecords(topics, limit, rows, tools.read_range)
    names = FileNames(tools.blind_index)
    return FileRecords(file_sources(plan.sources), limit, names, rows, is_last, plan.closed)
