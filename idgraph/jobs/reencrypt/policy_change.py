"""Re-encryption after a policy change: the job, and the thread beside a flow that starts it.

An attribute that became protected is sealed where it is stored without anybody running a command: each flow
is responsible for its writes. The flow runs the job after a snapshot that protects otherwise, once no
micro-batch under an older snapshot can come any more. The job log has the protection that the flow last
sealed by. The store keeps a mark of the last run. A store that was restored from before it has not got the
mark, and is looked through again.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress

from idgraph.jobs.job import JobRunner, Pace, PagedJob, Plan, Run
from idgraph.jobs.kind import JobContext, Rate, page_of, without
from idgraph.jobs.reencrypt.stored_sealing import PAGE, StoredSealing
from idgraph.model import canonical, paths
from idgraph.model.attributes import AttributeMetadata, AttributeStatus
from idgraph.model.backoff import steady
from idgraph.model.callers import Scope
from idgraph.model.classification import Classification, EncryptionLevel
from idgraph.model.documents import StrictDocument
from idgraph.model.errors import AlreadyRunningError, IdgraphError, JobStoppedError
from idgraph.model.jobs import START, JobKind, JobState, JobType, Point, Progress, Requester
from idgraph.model.snapshots import MetadataSnapshot, PinnedSnapshot
from idgraph.model.store import ProfileStore
from idgraph.projection.documents import IndexPolicies
from idgraph.repeating import Repeating, message_of
from ingestion.spark.workers import WorkerResources
from transforms.privacy.protected_names import ProtectedNames
from transforms.spec.mapping import CompiledSnapshot

log = logging.getLogger(__name__)

FLOW_PAGE = 500
"""Fragments per page beside a flow: it ends within a page when it is asked to stop."""
POLL_SECONDS = 1.0
RETRY = steady(30.0)
AGAIN_SECONDS = 3600.0
"""The pause after values that could not be sealed: a person has to repair them, and each look at all
costs."""
SHARE = 0.5
"""The largest share of one core, and of the store's time to write."""
LOOKING_SHARE = 0.1
"""The same while pages hold nothing to seal: a new flow looks through all that it stores."""


class SealParameters(StrictDocument):
    """Seal stored values that policy protects now."""

    rate: Rate = None


class Reencryption(PagedJob):
    """Seals values that are stored in the clear and are protected now. It counts as `StoredSealing.run` does,
    and also `refused` profiles, which the index finds by their former values."""

    kind = JobKind.REENCRYPT

    def __init__(
        self,
        sealing: StoredSealing,
        snapshot: MetadataSnapshot,
        store: ProfileStore,
        flow: str = "",
        page: int = PAGE,
        is_ready: Callable[[], bool] = lambda: True,
    ) -> None:
        """It waits until `is_ready`. `flow` is the one whose fragments it is responsible for. Without one it
        never resumes, as nobody knows which values came before its place meanwhile under an older policy."""
        self.sealing = sealing
        self.snapshot = snapshot
        self._store = store
        self.what = {"flow": flow, "protection": protection_of(snapshot)}
        self._page = page
        self._is_ready = is_ready

    def plan(self, point: Point) -> Plan:
        resumes = bool(self.what["flow"]) and "after" in point and self._store.remembers(point["mark"])
        title = f"the re-encryption under snapshot {self.snapshot.version}"
        return Plan(title, self._store.count(), "fragment", resumes)

    def pages(self, progress: Progress, point: Point) -> Iterator[Point]:
        mark = secrets.token_hex(8)
        self._store.remember(mark, point.get("mark", ""))
        while not self._is_ready():
            yield {"mark": mark}
        for after in self.sealing.run(progress, self._page, point.get("after", "")):
            yield {"mark": mark, "after": after}
        progress.counts["refused"] = self.sealing.finish()
        # Another mark: a backup from before this moment holds values in the clear.
        sealed = secrets.token_hex(8)
        self._store.remember(sealed, mark)
        yield {"mark": sealed}

    def paced(self, progress: Progress) -> int:
        # By writes: to look at sealed fragments costs little.
        return progress.counts["fragments"]


def prepare(
    parameters: SealParameters,
    context: JobContext,
    on_readable: Callable[[str, set[str]], None] | None = None,
    notes: bool = True,
) -> Reencryption:
    """The job for a person, not for a flow. `on_readable` as in `StoredSealing`, `notes` as in `JobContext`."""
    snapshot, resources = context.snapshot_for("sealing"), context.resources(notes)
    policies, compiled = context.policies(JobKind.REENCRYPT), CompiledSnapshot(snapshot)
    sealing = StoredSealing(resources, compiled, on_readable=on_readable, rules=lambda: policies().rules)
    return Reencryption(sealing, snapshot, resources.store, page=page_of(PAGE, parameters.rate))


REENCRYPT = JobType(
    "seals stored values that policy protects now",
    "idgraph seal",
    SealParameters,
    prepare,
    request=START,
    scope=Scope.OPERATE,
    shown=without(["protection"]),
    # A flow resumes its own.
    resumed=lambda record, _who: None if record.what.get("flow") else {},
)


def is_complete(progress: Progress) -> bool:
    """Whether no value that could be sealed stays in the clear, keys of paths aside."""
    return not any(progress.counts[each] for each in ("failed", "dead_letters", "refused"))


def sealed_by(runner: JobRunner, flow: str, store: ProfileStore) -> str | None:
    """The protection by which all that a flow stored was sealed; None if no run began. It is empty if its
    last run did not end, left something in the clear, or was in a store that was restored since."""
    for record in runner.log.scan(JobKind.REENCRYPT):
        if record.what.get("flow") == flow:
            if record.state is not JobState.DONE or not is_complete(record.progress):
                return ""
            if store.remembers(runner.private(record).get("point", {}).get("mark", "")):
                return str(record.what["protection"])
            log.warning(
                "the profile store was restored or rebuilt: all of it is searched for values to protect"
            )
            return ""
    return None


def is_sealed_by_command(runner: JobRunner, protection: str, store: ProfileStore, since: int) -> bool:
    """Whether `idgraph seal`, begun after the moment `since` in milliseconds, sealed all by this protection in this store."""
    return any(
        record.what.get("flow") == ""
        and record.what.get("protection") == protection
        and record.started >= since
        and record.state is JobState.DONE
        and is_complete(record.progress)
        and store.remembers(runner.private(record).get("point", {}).get("mark", ""))
        for record in runner.log.scan(JobKind.REENCRYPT)
    )


class PolicyChanges:
    """A thread beside a flow. Use as a context manager; it ends after the page that it is at."""

    def __init__(
        self,
        flow: str,
        runner: JobRunner,
        resources: WorkerResources,
        current: Callable[[], PinnedSnapshot],
        is_past: Callable[[str], bool],
        baseline: str | None = None,
        share: float = SHARE,
        last_batch: int | None = None,
        is_projected: bool = False,
    ) -> None:
        """`is_past` says of an ETag whether no micro-batch under another snapshot can come any more. `baseline` is the
        protection that all is sealed by which the flow has stored before its first run; without one, all is looked
        through. `last_batch` is the moment, in milliseconds, at which the last micro-batch of an earlier run ended.
        `is_projected`: as in `StoredSealing`."""
        self._flow = flow
        self._runner = runner
        self._resources = resources
        self._current = current
        self._is_past = is_past
        self._baseline = baseline
        self._share = share
        self._known = current()
        self._policies = IndexPolicies(lambda: current().snapshot)
        self._wanted = protection_of(self._known.snapshot)
        self._changed = False
        self._paths: set[str] | None = None
        self._last_batch = last_batch
        self._is_projected = is_projected
        self._past: int | None = None
        self._sealed: str | None = None
        self._cancelled: str | None = None
        self._repeating = Repeating("policy-changes", self._step, self._report, backoff=RETRY)

    def __enter__(self) -> PolicyChanges:
        self._begin_with_nothing()
        self._repeating.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._repeating.close(60)

    def _begin_with_nothing(self) -> None:
        """Before the first micro-batch of a new flow nothing is stored: else its thread would look through all of that."""
        store = self._resources.store
        is_new = self._baseline is None and sealed_by(self._runner, self._flow, store) is None
        if is_new and not store.scan("", 1) and self._is_past(self._known.etag):
            # The thread does it again, and reports what failed.
            with suppress(IdgraphError):
                self._run_job(set())

    def _step(self) -> float:
        self._look()
        if self._changed:
            # Also where it changed back: values that were mapped in between are in the clear, wherever they
            # stand.
            self._changed, self._sealed, self._cancelled = False, "", None
        if self._wanted in (self._sealed, self._cancelled):
            return POLL_SECONDS
        if self._sealed is None:
            found = sealed_by(self._runner, self._flow, self._resources.store)
            self._sealed = found if found is not None else self._baseline or ""
            if self._sealed == self._wanted:
                self._paths = set()
            return 0.0
        try:
            if not (self._is_sealed_by_command() or self._seal()):
                return AGAIN_SECONDS
            self._sealed = self._wanted
        except AlreadyRunningError:
            # Another flow's run, or an operator's: then it is this one's turn.
            pass
        except JobStoppedError:
            # With the flow; or cancelled: then until its next start, or another change.
            self._cancelled = self._wanted
        return POLL_SECONDS

    def _report(self, error: Exception) -> None:
        level = logging.WARNING if isinstance(error, IdgraphError) else logging.ERROR
        log.log(level, "stored values are not sealed yet: %s", message_of(error))

    def _look(self) -> None:
        """Notice whether protection changed."""
        newest = self._current()
        if newest.etag == self._known.etag:
            return
        before, self._known = self._known, newest
        wanted = protection_of(newest.snapshot)
        if wanted != self._wanted:
            self._changed, self._wanted = True, wanted
            self._past, self._last_batch = None, None
            changed = changed_paths(before.snapshot, newest.snapshot)
            self._paths = None if self._paths is None or changed is None else self._paths | changed

    def _is_sealed_by_command(self) -> bool:
        """Whether a command has sealed all that the flow can have left in the clear."""
        if self._past is None and self._is_past(self._current().etag):
            now = time.time_ns() // 1_000_000
            self._past = now if self._last_batch is None else self._last_batch
        if self._past is None:
            return False
        is_sealed = is_sealed_by_command(self._runner, self._wanted, self._resources.store, self._past)
        if is_sealed:
            self._paths = set()
        return is_sealed

    def _seal(self) -> bool:
        """Run the job; returns whether nothing is left in the clear."""
        changed, self._paths = self._paths, set()
        is_sealed = False
        try:
            is_sealed = self._run_job(changed)
        finally:
            if not is_sealed:
                self._paths = None if changed is None or self._paths is None else changed | self._paths
        return is_sealed

    def _run_job(self, changed: Collection[str] | None) -> bool:
        snapshot = self._known.snapshot
        compiled, is_projected = CompiledSnapshot(snapshot), self._is_projected
        sealing = StoredSealing(
            self._resources,
            compiled,
            changed=changed,
            is_projected=is_projected,
            rules=lambda: self._policies().rules,
        )
        ready = self._is_ready
        job = Reencryption(sealing, snapshot, self._resources.store, self._flow, FLOW_PAGE, ready)

        runs: list[Run] = []

        def watch(run: Run) -> None:
            runs[:] = [run]
            self._look()
            if self._changed:
                # Values that were mapped meanwhile may stand before this point.
                run.point = {key: value for key, value in run.point.items() if key != "after"}

        origin = Requester(f"flow {self._flow}", f"snapshot {snapshot.version} may protect what is stored")
        try:
            pace = Pace(None, self._share, self._repeating.stop, min(self._share, LOOKING_SHARE))
            done = self._runner.run(job, origin, pace=pace, watch=watch)
        except JobStoppedError:
            if 0 < (stopped := runs[0].progress).done < stopped.total:
                log.info(
                    "the flow ended while it sealed what is stored, after %d of %d profiles; its next run "
                    "continues, and `idgraph seal` does it at once",
                    stopped.done,
                    stopped.total,
                )
            raise
        if done.counts["fragments"]:
            log.info(
                "sealed %d values of %d profiles, as snapshot %d protects them",
                done.parts("values").total(),
                done.counts["fragments"],
                snapshot.version,
            )
        if not is_complete(done) or done.parts("readable"):
            log.warning("some stored values stay in the clear; `idgraph seal` lists them and the remedy")
        return is_complete(done)

    def _is_ready(self) -> bool:
        if self._is_past(self._current().etag):
            return True
        self._repeating.stop.wait(POLL_SECONDS)
        return False


def protection_of(snapshot: MetadataSnapshot) -> str:
    """A hash of all that protects in a snapshot: equal hashes seal the same values."""
    defaults, levels = snapshot.defaults, snapshot.levels
    protects = [
        # Names too: a store that was sealed by an idgraph without them is looked at again.
        "names",
        # An exception below a protected attribute protects nothing, and tokens depend on the declared type.
        sorted(
            (each.path, str(each.encryption), str(each.status), str(each.data_type))
            for each in snapshot.attributes
            if not _is_as_undeclared(each, snapshot)
        ),
        [str(defaults.encryption), str(defaults.detection)],
        [str(levels.policy(each).encryption) for each in Classification],
        sorted([place.type, place.path] for spec in snapshot.specs for place in spec.identifiers),
        sorted([spec.name, spec.id or ""] for spec in snapshot.specs),
    ]
    return hashlib.sha256(canonical.encode(protects)).hexdigest()


def changed_paths(known: MetadataSnapshot, newer: MetadataSnapshot) -> set[str] | None:
    """The attributes that the newer snapshot may protect otherwise; None where it is more than these: specs, defaults, a path
    that is gone, or an attribute that plays a part in names."""
    if (known.specs, known.defaults, known.levels) != (newer.specs, newer.defaults, newer.levels):
        return None
    before = {each.path: each for each in known.attributes}
    found = {each.path for each in newer.attributes if before.pop(each.path, None) != each}
    names = ProtectedNames(newer)
    return None if before or any(map(names.depend_on, found)) else found


def _is_as_undeclared(each: AttributeMetadata, snapshot: MetadataSnapshot) -> bool:
    """Whether a discovered attribute has the protection that its values had before it was discovered."""
    # Most discovered attributes are so: to look through all profiles for each would never end.
    if each.status is not AttributeStatus.DISCOVERED or each.encryption is not snapshot.defaults.encryption:
        return False
    if each.encryption is not EncryptionLevel.PROTECTED:
        # The token of a searchable value depends on the declared type.
        return each.encryption is EncryptionLevel.NONE
    # A protected path also protects a declared path above it.
    above = filter(None, map(snapshot.attribute, paths.ancestors(each.path)))
    return all(known.encryption is EncryptionLevel.PROTECTED for known in above)
