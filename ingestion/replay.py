"""Giving dead letters through the stages again, without Spark, under today's snapshot."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from ingestion.commit_stage import CommitStage
from ingestion.map_stage import MapOutput, MapStage
from ingestion.outcomes import StageReport
from ingestion.set_aside import FRAGMENT, BatchAttempt, LetterWriter
from ingestion.tasks import WorkerPlan, WorkerResources
from model.dead_letters import DeadLetter, DeadLetterReason, DeadLetters
from model.errors import SealError
from model.events import RawRecord
from model.schema_changes import SchemaChange
from model.snapshots import MetadataSnapshot
from transforms.compiled import CompiledSnapshot

PARTIAL = frozenset({DeadLetterReason.TOO_LARGE, DeadLetterReason.CORRUPT_SOURCE})
"""Letters that hold only a part of their record: the file must be given again."""

LETTERS_AT_ONCE = 1000


@dataclass(slots=True)
class ReplayReport:
    """What became of the letters."""

    replayed: int = 0
    still_dead: int = 0
    partial: int = 0
    unreadable: int = 0


def replay(
    letters: Iterable[DeadLetter],
    plan: WorkerPlan,
    resources: WorkerResources,
    snapshot: MetadataSnapshot,
    open_payload: Callable[[bytes, str, str], bytes],
    send_changes: Callable[[list[SchemaChange]], None],
) -> ReplayReport:
    """Replay letters; those that pass are dropped once committed, the others stay with today's reason.

    `send_changes` takes the schema changes that letters brought, and returns when they are safe: only then
    are these letters dropped. What it raises ends the replay.
    Safe beside a running flow and safe to repeat: a record keeps its position, and commits are idempotent.
    """
    report = ReplayReport()
    compiled = CompiledSnapshot(snapshot)
    batch = BatchAttempt(f"replay/{uuid.uuid4().hex}", uuid.uuid4().hex)
    stage = MapStage(
        compiled,
        plan.sources,
        plan.flow,
        batch,
        resources.data_keys,
        resources.blind_index,
        LetterWriter(resources.sealer),
        time.time,
    )
    commit = CommitStage(
        resources.store, resources.index, compiled.attributes.is_indexable, plan.flow.commit_fragments
    )
    remaining = iter(letters)
    while some := list(islice(remaining, LETTERS_AT_ONCE)):
        _replay_fragments(some, report, open_payload, commit, resources.dead_letters)
        records = dict(_records(some, plan, report, open_payload))
        kept: set[str] = set()
        for output in stage.run(records.values()):
            commit.run(output.fragments.items())
            if output.changes:
                send_changes(_changes(output))
            # The new letters first: a crash in between leaves two letters of a record, never none.
            resources.dead_letters.put(output.letters)
            kept.update(letter.id for letter in output.letters)
            report.still_dead += len(output.letters)
            report.replayed += output.events - len(output.letters)
        resources.dead_letters.drop([letter_id for letter_id in records if letter_id not in kept])
    return report


def _replay_fragments(
    letters: list[DeadLetter],
    report: ReplayReport,
    open_payload: Callable[[bytes, str, str], bytes],
    commit: CommitStage,
    dead_letters: DeadLetters,
) -> None:
    """Join to their fragments what letters hold for them, where these can be read again."""
    found: list[tuple[str, str, bytes]] = []
    for letter in letters:
        if letter.reason is not DeadLetterReason.DAMAGED_FRAGMENT:
            continue
        try:
            payload = open_payload(letter.payload, letter.id, letter.position)
        except SealError:
            report.unreadable += 1
            continue
        found.append((letter.id, letter.position.removeprefix(FRAGMENT), payload))
    damaged = commit.run((fragment_id, state) for _, fragment_id, state in found).damaged
    joined = [letter_id for letter_id, fragment_id, _ in found if fragment_id not in damaged]
    report.replayed += len(joined)
    report.still_dead += len(found) - len(joined)
    dead_letters.drop(joined)


def _records(
    letters: list[DeadLetter],
    plan: WorkerPlan,
    report: ReplayReport,
    open_payload: Callable[[bytes, str, str], bytes],
) -> Iterator[tuple[str, RawRecord]]:
    for letter in letters:
        if letter.reason is DeadLetterReason.DAMAGED_FRAGMENT:
            continue
        if letter.reason in PARTIAL or letter.source not in plan.sources:
            report.partial += 1
            continue
        try:
            payload = open_payload(letter.payload, letter.id, letter.position)
        except SealError:
            report.unreadable += 1
            continue
        yield letter.id, RawRecord(letter.source, letter.position, payload)


def _changes(output: MapOutput) -> list[SchemaChange]:
    found = [(path, str(kind), *origin) for (path, kind), origin in output.changes.items()]
    return StageReport(changes=found).schema_changes()
