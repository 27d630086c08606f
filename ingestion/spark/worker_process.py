"""The state of a Spark worker process between micro-batches, and its error reports.

A worker process lives through many micro-batches. Objects that are dear to make - open stores, the compiled snapshot
- are kept here by process; keys come from the worker's own provider and never from the driver.
"""

from __future__ import annotations

import functools
import gc
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from idgraph.model.batch_size import BatchSize
from idgraph.model.errors import FlowStoppedError, IdgraphError
from idgraph.model.index import IndexRules
from idgraph.projection.projection import Projection
from ingestion.spark.sent_snapshots import SentSnapshot
from ingestion.spark.workers import WorkerPlan, WorkerResources
from ingestion.stages.dead_letters import BatchAttempt
from transforms.schema.diff import AttributeTree
from transforms.spec.mapping import CompiledSnapshot

T = TypeVar("T")

_THRESHOLDS = gc.get_threshold()
"""Those of a process that runs no task. Looked up once: a task that begins before another has ended finds its own."""


class BatchOrder(NamedTuple):
    """One micro-batch: which run of it, and under which snapshot.

    After the last attempt the micro-batch is not retried: what cannot be read or committed has failed then.
    """

    attempt: BatchAttempt
    snapshot: SentSnapshot
    is_last: bool


@dataclass(slots=True)
class _Process:
    resources: dict[str, WorkerResources] = field(default_factory=dict)
    compiled: tuple[str, CompiledSnapshot] | None = None
    rules: tuple[str, IndexRules] | None = None
    projections: dict[str, Projection] = field(default_factory=dict)
    sizes: dict[str, BatchSize] = field(default_factory=dict)


_process = _Process()


def resources(plan: WorkerPlan) -> WorkerResources:
    """This process's resources for a plan, opened when first asked for."""
    opened = _process.resources.get(plan.settings)
    if opened is None:
        opened = plan.open_resources(plan.settings)
        _process.resources[plan.settings] = opened
        _freeze_long_lived_objects()
    return opened


def commit_size(plan: WorkerPlan) -> BatchSize:
    """The number of fragments that this process gives the store at once, as it has learnt."""
    return _process.sizes.setdefault(plan.settings, BatchSize(plan.flow.commit_fragments))


def compiled(order: BatchOrder) -> CompiledSnapshot:
    """The order's snapshot, compiled once a process and version."""
    known, etag = _process.compiled, order.snapshot.etag
    if known is None or known[0] != etag:
        compiled = order.snapshot.compiled(known and known[1])
        _process.compiled = (etag, compiled)
        _freeze_long_lived_objects()
        return compiled
    return known[1]


def projection(plan: WorkerPlan, sent: SentSnapshot, is_kept: bool) -> Projection:
    """This process's projection of a plan's store, by the rules of a snapshot. One that looks through all fragments is not
    kept: it remembers persons whose page goes to another process."""
    if _process.rules is None or _process.rules[0] != sent.etag:
        _process.rules = sent.etag, AttributeTree(sent.snapshot()).index_rules
    if not is_kept:
        return resources(plan).projection(_rules)
    if plan.settings not in _process.projections:
        _process.projections[plan.settings] = resources(plan).projection(_rules)
    return _process.projections[plan.settings]


def _rules() -> IndexRules:
    assert _process.rules is not None  # noqa: S101 - set before a projection is returned
    return _process.rules[1]


def _freeze_long_lived_objects() -> None:
    """Freeze long-lived objects, so that the collector does not walk them after each task."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def only_our_errors(
    run: Callable[..., Iterator[T]],
) -> Callable[..., Iterator[T]]:
    """Spark logs a failed task's traceback and hands it to the driver. The message of a stranger's
    exception may quote an event (law 3), so only its type is passed on, with the places in the code."""

    @functools.wraps(run)
    def guarded(*arguments: Any) -> Iterator[T]:
        failure: IdgraphError | None = None
        # A chunk of events is millions of small tuples and hardly a cycle. With Python's thresholds the
        # collector walks them again and again, which halves the rate; so it runs between tasks. Not by
        # `gc.disable`: where PySpark reads a broadcast value it enables the collector behind it.
        gc.set_threshold(0)
        try:
            yield from run(*arguments)
        except IdgraphError:
            raise
        except Exception as error:
            places = " < ".join(
                f"{Path(frame.filename).name}:{frame.lineno}"
                for frame in reversed(traceback.extract_tb(error.__traceback__))
            )
            failure = FlowStoppedError(f"a stage failed with {type(error).__name__} at {places}")
        finally:
            gc.set_threshold(*_THRESHOLDS)
            gc.collect()
        if failure is not None:
            # Outside the handler, or the original would hang on as its context.
            raise failure

    return guarded


def is_task_retried() -> bool:
    """Whether Spark retries this task: an executor was lost, or the task failed."""
    # Here, so that the stages are loaded where there is no Spark.
    from pyspark import TaskContext

    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0
