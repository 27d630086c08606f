"""Work on a store, spread over Spark's tasks: over all its fragments, or over parts that the driver makes.

A task over fragments gets those of whole profiles, as the projection last recorded them: its work seldom reads those of others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from typing import TypeVar

import pyarrow as pa
from pyspark.accumulators import Accumulator
from pyspark.sql import SparkSession

from idgraph.model.batch_size import BatchSize
from idgraph.model.store import read_pages
from ingestion.spark.micro_batch import map_in_arrow
from ingestion.spark.session import stop_session
from ingestion.spark.tasks import rows_of
from ingestion.spark.worker_errors import error_of_spark, is_of_spark
from ingestion.spark.worker_process import only_our_errors, resources
from ingestion.spark.workers import WorkerPlan, WorkerResources

TASKS_PER_CORE = 8
READ_AT_ONCE = 2000
POLL_SECONDS = 0.5

T = TypeVar("T")
Look = Callable[[WorkerResources, list[str]], bytes]
"""Looks at some fragments, in a worker."""
Answer = Callable[[WorkerResources, int, bytes], bytes]
"""Answers a part, given with its place, in a worker."""


def looked_at(session: SparkSession, plan: WorkerPlan, look: Look) -> Iterator[tuple[int, list[bytes]]]:
    """The number of fragments looked at until now; at the end also the results of `look`. To close it ends the session.

    Raises StoreError, and FlowStoppedError for what Spark itself says.
    """
    seen = session.sparkContext.accumulator(0)

    def parts() -> list[bytes]:
        table = pa.table({"fragment": pa.array(resources(plan).store.ids(), pa.string())})
        profiles = map_in_arrow(
            session.createDataFrame(table),
            functools.partial(_profiles, plan),
            "fragment string, profile string",
        )
        tasks = profiles.repartition(tasks_of(session), "profile")
        found = map_in_arrow(tasks, functools.partial(_looked_at, plan, look, seen), "part binary")
        return [bytes(row.part) for row in found.collect()]

    for found in _waited_for(session, parts):
        yield seen.value, found or []


def tasks_of(session: SparkSession) -> int:
    """The number of parts that keep all cores at work."""
    cores: int = session.sparkContext.defaultParallelism
    return TASKS_PER_CORE * cores


def answered(
    session: SparkSession, plan: WorkerPlan, parts: Sequence[bytes], answer: Answer
) -> Iterator[list[bytes] | None]:
    """The answers to all parts, in their order; before it None from time to time. To close it ends the session. Raises as `looked_at`
    does, and the errors of `answer`."""

    def answers() -> list[bytes]:
        places = pa.array(range(len(parts)), pa.int32())
        rows = session.createDataFrame(pa.table({"place": places, "part": pa.array(parts, pa.binary())}))
        found = map_in_arrow(
            rows.repartition(len(parts)),
            functools.partial(_answered, plan, answer),
            "place int, answer binary",
        )
        return [bytes(row.answer) for row in sorted(found.collect(), key=lambda row: row.place)]

    return _waited_for(session, answers)


def _waited_for(session: SparkSession, work: Callable[[], T]) -> Iterator[T | None]:
    """None from time to time while a thread works, then its result."""
    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(work)
        try:
            while not wait((found,), POLL_SECONDS).done:
                yield None
            yield found.result()
        except Exception as error:
            if not is_of_spark(error):
                raise
            raise error_of_spark(error, lambda text: text) from None
        finally:
            if not found.done():
                stop_session(session)


@only_our_errors
def _profiles(plan: WorkerPlan, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    ids = (name for (name,) in rows_of(batches))
    for _, stored in read_pages(resources(plan).store, ids, BatchSize(READ_AT_ONCE)):
        yield pa.record_batch(
            [
                pa.array(list(stored), pa.string()),
                pa.array([each.projected_into for each in stored.values()], pa.string()),
            ],
            ["fragment", "profile"],
        )


@only_our_errors
def _looked_at(
    plan: WorkerPlan, look: Look, seen: Accumulator[int], batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    ids = sorted(fragment for fragment, _ in rows_of(batches))
    part = look(resources(plan), ids)
    seen.add(len(ids))
    yield pa.record_batch([pa.array([part], pa.binary())], ["part"])


@only_our_errors
def _answered(
    plan: WorkerPlan, answer: Answer, batches: Iterable[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    for place, part in rows_of(batches):
        found = answer(resources(plan), place, part)
        yield pa.record_batch(
            [pa.array([place], pa.int32()), pa.array([found], pa.binary())], ["place", "answer"]
        )
