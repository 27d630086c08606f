"""The records of a task's rows, by the kind of the flow's sources."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from ingestion.sources.files.names import FileNames
from ingestion.sources.files.ownership import file_sources
from ingestion.sources.files.records import FileRecords
from ingestion.sources.kafka.configuration import kafka_sources
from ingestion.sources.kafka.records import KafkaRecords
from ingestion.sources.record_reader import RecordReader, SparkRow
from ingestion.spark.workers import WorkerPlan, WorkerResources


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
    return FileRecords(file_sources(plan.sources), limit, FileNames(tools.blind_index), rows, is_last)
