"""Replaying dead letters, as `idgraph dead-letters replay` does."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from idgraph.jobs.replay import Replay
from idgraph.model.dead_letters import DeadLetter
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.snapshots import MetadataSnapshot
from ingestion.spark.workers import WorkerPlan, WorkerResources
from tests.support.steps import ended


class ReplayReport(NamedTuple):
    """The outcome of the dead letters."""

    replayed: int = 0
    still_dead: int = 0
    partial: int = 0
    unreadable: int = 0


def replay(
    dead_letters: Iterable[DeadLetter],
    plan: WorkerPlan,
    resources: WorkerResources,
    snapshot: MetadataSnapshot,
    open_payload: Callable[[bytes, str, str], bytes],
    send_changes: Callable[[list[SchemaChange]], None],
) -> ReplayReport:
    """Replay them all."""
    job = Replay(dead_letters, plan, resources, snapshot, open_payload, send_changes)
    counts = ended(job).counts
    return ReplayReport(*(counts[each] for each in ReplayReport._fields))
