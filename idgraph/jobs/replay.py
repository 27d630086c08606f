"""Replaying dead letters through the stages, without Spark, under today's snapshot."""

from __future__ import annotations

import hashlib
import logging
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from idgraph.jobs.job import PagedJob, Plan
from idgraph.jobs.kind import JobContext
from idgraph.jobs.reencrypt.stored_sealing import StoredSealing
from idgraph.model.batch_size import BatchSize
from idgraph.model.callers import Scope
from idgraph.model.dead_letters import FRAGMENT, PARTIAL, DeadLetter, DeadLetters
from idgraph.model.documents import StrictDocument
from idgraph.model.errors import DamagedStateError, KeyProviderError, ProfileIndexError, SealError, StoreError
from idgraph.model.events import RawRecord
from idgraph.model.jobs import JobKind, JobType, Point, Progress
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.snapshots import MetadataSnapshot
from ingestion.spark.workers import WorkerPlan, WorkerResources
from ingestion.stages.commit import CommitStage
from ingestion.stages.dead_letters import BatchAttempt, DeadLetterWriter, read_changes
from ingestion.stages.decrypt import Decryption
from ingestion.stages.map_output import EncodedChange, MapOutput
from ingestion.stages.map_stage import MapStage
from ingestion.stages.outcomes import StageReport
from merge.fragments import FragmentState
from transforms.spec.mapping import CompiledSnapshot

log = logging.getLogger(__name__)

DEAD_LETTERS_AT_ONCE = 1000
DEAD_LETTER_BYTES_AT_ONCE = 16 << 20
"""Bounds of a slice; the bytes are those of sealed payloads. Opened, mapped and committed they take several
times as much memory."""


class ReplayParameters(StrictDocument):
    """Replay dead letters, by their ids."""

    dead_letters: list[str]


def _slices(dead_letters: Iterable[DeadLetter]) -> Iterator[list[DeadLetter]]:
    """The dead letters, as many at a time as memory has room for; one at least."""
    some: list[DeadLetter] = []
    size = 0
    for dead_letter in dead_letters:
        if some and (
            len(some) >= DEAD_LETTERS_AT_ONCE or size + len(dead_letter.payload) > DEAD_LETTER_BYTES_AT_ONCE
        ):
            yield some
            some, size = [], 0
        some.append(dead_letter)
        size += len(dead_letter.payload)
    if some:
        yield some


class Replay(PagedJob):
    """Replays dead letters under one snapshot; those that pass are dropped once committed, the others stay
    with today's reason. Counts those `replayed`, `still_dead`, `partial` (their file must be published again)
    and `unreadable`.

    Safe beside a running flow and safe to repeat: a record keeps its position, and commits are idempotent.
    Replayed dead letters are gone from the list, so it needs no point.
    """

    kind = JobKind.REPLAY

    def __init__(
        self,
        dead_letters: Iterable[DeadLetter],
        plan: WorkerPlan,
        resources: WorkerResources,
        snapshot: MetadataSnapshot,
        open_payload: Callable[[bytes, str, str], bytes],
        send_changes: Callable[[list[SchemaChange]], None],
        total: int = 0,
        target: str = "",
    ) -> None:
        """`send_changes` takes the schema changes that dead letters brought, and returns when they are safe:
        only then are these dead letters dropped. Its errors end the replay. `target` distinguishes one choice
        of dead letters from another."""
        self.target = target
        self._chosen = dead_letters
        self._total = total
        self._progress = Progress()
        self._sources = plan.sources
        self._decryption = Decryption(plan.sources, resources.decryptors)
        self._version = snapshot.version
        self._open_payload = open_payload
        self._send_changes = send_changes
        self._dead_letters = resources.dead_letters
        self._writer = DeadLetterWriter(resources.sealer)
        self._batch = BatchAttempt(f"replay/{uuid.uuid4().hex}", uuid.uuid4().hex, is_again=True)
        compiled = CompiledSnapshot(snapshot)
        self._sealing = StoredSealing(resources, compiled)
        self._map = MapStage(
            compiled,
            plan.sources,
            plan.flow,
            self._batch,
            resources.data_keys,
            resources.blind_index,
            self._writer,
            time.time,
            resources.tombstones,
            resources.formats,
        )
        self._store = resources.store
        self._projection = resources.projection(lambda: compiled.attributes.index_rules)
        self._erased_keys = 0
        self._orphaned_keys = resources.orphaned_keys()
        stage = partial(CommitStage, self._store, BatchSize(plan.flow.commit_fragments))
        self._guard = resources.key_guard()
        self._commit = stage(self._guard)
        # Values that were sealed for today's name can be sealed again; those of a dead letter, whose key may
        # be gone, cannot.
        self._join_renamed = stage(self._guard, gives_up=True)
        self._join = stage()

    def plan(self, _point: Point) -> Plan:
        return Plan("the replay", self._total, "dead letter")

    def pages(self, progress: Progress, _point: Point) -> Iterator[Point]:
        self._progress = progress
        for some in _slices(self._chosen):
            self.replay_fragments(some)
            self.replay_records(some)
            self.project()
            progress.done += len(some)
            yield {}
        self.finish()

    def replay_fragments(self, dead_letters: list[DeadLetter]) -> None:
        """Join the changes that dead letters hold to their fragments, where these can be read again."""
        found = list(self._read([each for each in dead_letters if each.holds_changes()]))
        ready = [
            sealed
            for dead_letter, change in found
            if (sealed := self._sealed(dead_letter, change)) is not None
        ]
        positions = {dead_letter.id: dead_letter.position for dead_letter, _ in found}
        joined: dict[str, str] = {}
        for stage, is_renamed in ((self._join, False), (self._join_renamed, True)):
            some = [each for each in ready if (FRAGMENT + each[1][0] != positions[each[0]]) is is_renamed]
            failures = stage.run(change for _, change in some).failed
            failed = {failure.fragment_id for failure in failures}
            joined |= {dead_letter_id: name for dead_letter_id, (name, *_) in some if name not in failed}
        self._progress.counts["replayed"] += len(joined)
        self._progress.counts["still_dead"] += len(found) - len(joined)
        self._dead_letters.drop([*joined])
        # Keys of refused changes, and of those under another name.
        names = {*joined.values(), *(positions[each].removeprefix(FRAGMENT) for each in joined)}
        self._erased_keys += self._orphaned_keys.erase(self._store.tombstones(names) if names else ())

    def _read(self, dead_letters: Iterable[DeadLetter]) -> Iterator[tuple[DeadLetter, FragmentState]]:
        """Dead letters with the changes that they hold, but for those that are damaged or of a later format."""
        for dead_letter, payload in self._opened(dead_letters):
            try:
                change = read_changes(payload)
            except StoreError:
                self._progress.counts["unreadable"] += 1
                continue
            yield dead_letter, change

    def _sealed(self, dead_letter: DeadLetter, change: FragmentState) -> tuple[str, EncodedChange] | None:
        """A dead letter's id and its changes; None if these cannot be sealed as the snapshot says,
        which may be newer than the one they were mapped by."""
        try:
            name, change = self._sealing.seal_change(dead_letter.position.removeprefix(FRAGMENT), change)
            return dead_letter.id, (name, change.change_bytes(), change.erasure_epoch)
        except (SealError, KeyProviderError, DamagedStateError):
            return None
        except (StoreError, MemoryError):
            raise
        except Exception as error:
            # Only the type: the message of a stranger's exception may quote a value.
            log.log(
                logging.ERROR, "dead letter %s cannot be replayed: %s", dead_letter.id, type(error).__name__
            )
            return None

    def replay_records(self, dead_letters: list[DeadLetter]) -> None:
        """Pass records through the stages; a record that fails becomes a dead letter again."""
        records = {
            dead_letter.id: RawRecord(dead_letter.source, dead_letter.position, payload)
            for dead_letter, payload in self._opened(self._whole(dead_letters))
        }
        kept: set[str] = set()
        for output in self._map.run(self._decryption.run(records.values())):
            kept.update(self._commit_output(output))
        self._dead_letters.drop([dead_letter_id for dead_letter_id in records if dead_letter_id not in kept])

    def project(self) -> None:
        """Project commits, also those of an earlier replay that was interrupted."""
        try:
            self._projection.sweep()
        except ProfileIndexError as error:
            log.warning("the outbox waits for the next flow: %s", error)

    def finish(self) -> None:
        """Remove erased bytes from the files. Also without a dead letter, the outbox is projected."""
        if self._erased_keys:
            self._orphaned_keys.compact()
        self.project()

    def _commit_output(self, output: MapOutput) -> list[str]:
        """Commit the changes that passed and set the rest aside; returns the ids of the dead letters."""
        failed = self._commit.run(output.encoded()).failed
        refused = output.refused | self._commit.refused
        self._commit.refused.clear()
        if output.changes:
            self._send_changes(StageReport(changes=output.reported_changes()).schema_changes())
        dead_letters = [*output.dead_letters, *self._writer.of_failures(failed, self._version, self._batch)]
        # The new dead letters first: a crash in between leaves two dead letters of a record, never none.
        with self._guard.setting_aside(failed):
            self._dead_letters.put(dead_letters)
        self._erased_keys += self._orphaned_keys.erase(refused)
        self._progress.counts["still_dead"] += len(dead_letters)
        self._progress.counts["replayed"] += output.events - len(output.dead_letters)
        return [dead_letter.id for dead_letter in dead_letters]

    def _whole(self, dead_letters: list[DeadLetter]) -> Iterator[DeadLetter]:
        """The dead letters that hold a whole record of a source that there is."""
        for dead_letter in dead_letters:
            if dead_letter.holds_changes():
                continue
            if dead_letter.reason in PARTIAL or dead_letter.source not in self._sources:
                self._progress.counts["partial"] += 1
            else:
                yield dead_letter

    def _opened(self, dead_letters: Iterable[DeadLetter]) -> Iterator[tuple[DeadLetter, bytes]]:
        for dead_letter in dead_letters:
            try:
                yield (
                    dead_letter,
                    self._open_payload(dead_letter.payload, dead_letter.id, dead_letter.position),
                )
            except SealError:
                self._progress.counts["unreadable"] += 1


def prepare(parameters: ReplayParameters, context: JobContext) -> Replay:
    """The job that replays them under the newest snapshot."""
    snapshot, resources = context.snapshot_for("a replay"), context.resources()
    chosen = parameters.dead_letters
    return Replay(
        _one_by_one(resources.dead_letters, chosen, context.report),
        context.plan,
        resources,
        snapshot,
        resources.sealer.open,
        context.send,
        len(chosen),
        hashlib.sha256("\n".join(sorted(chosen)).encode()).hexdigest()[:16],
    )


def _one_by_one(
    dead_letters: DeadLetters, ids: Iterable[str], report: Callable[[str], None]
) -> Iterator[DeadLetter]:
    """Dead letters one by one, because all do not fit in memory."""
    for each in ids:
        if (dead_letter := dead_letters.get(each)) is not None:
            yield dead_letter
        else:
            report(f"removed meanwhile: {each}")


REPLAY = JobType(
    "gives dead letters through the stages again",
    "idgraph dead-letters replay",
    ReplayParameters,
    prepare,
    request="POST /v1/dead-letters/replay",
    scope=Scope.OPERATE,
)
