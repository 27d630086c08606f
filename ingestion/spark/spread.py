"""Work over all fragments of a store, spread over Spark's tasks.

A task gets the fragments of whole profiles, as the projection last recorded them: its work seldom reads those of others.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait

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

Look = Callable[[WorkerResources, list[str]], bytes]
"""Looks at some fragments, in a worker."""


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
        tasks = profiles.repartition(TASKS_PER_CORE * session.sparkContext.defaultParallelism, "profile")
        found = map_in_arrow(tasks, functools.partial(_looked_at, plan, look, seen), "part binary")
        return [bytes(row.part) for row in found.collect()]

    with ThreadPoolExecutor(1) as thread:
        found = thread.submit(parts)
        try:
            while not wait((found,), POLL_SECONDS).done:
                yield seen.value, []
            yield seen.value, found.result()
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
