"""Sealing what is stored when protection is turned on, beside the flow that follows the change.

A flow answers for what it wrote: it seals once no micro-batch that was begun under an older snapshot can come any
more, and remembers on disk what it has sealed by, and how far it is. With each page the store is given another mark, which
stands on disk too: a store that was restored from before has not got it, and is looked through again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable
from enum import Enum
from pathlib import Path

from idgraph.files import write_atomically
from idgraph.jobs.reencrypt.stored_sealing import SealingProgress, StoredSealing
from idgraph.jobs.resume_points import ResumePoint
from idgraph.model import canonical
from idgraph.model.attributes import AttributeMetadata, AttributeStatus
from idgraph.model.classification import Classification, EncryptionLevel
from idgraph.model.errors import IdgraphError, StoreError
from idgraph.model.snapshot_changes import changes_between
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot
from ingestion.metadata.snapshot_file import PinnedSnapshot
from ingestion.spark.workers import WorkerResources
from transforms.spec.snapshot import CompiledSnapshot

log = logging.getLogger(__name__)

PAGE = 100
POLL_SECONDS = 1.0
SETTLED_SECONDS = 10.0
"""How long protection must have stayed the same: while attributes are discovered it changes all the time."""
LATEST_SECONDS = 300.0
"""After a first change, whatever changes since: whoever may publish events can have attributes discovered."""
RETRY_SECONDS = 30.0
AGAIN_SECONDS = 3600.0
"""After what could not be sealed: a person has to repair it, and to look at all costs."""
SHARE = 0.05
"""How much of one core, at most, and of the store's time to write."""
BURST_SHARE = 0.5
BURST_SECONDS = 5.0
"""The first seconds of work take that much: some thousand profiles are sealed as soon as one looks."""


class BackgroundSealing:
    """A thread beside a flow. Use as a context manager; it ends after the page that it is at."""

    def __init__(
        self,
        resources: WorkerResources,
        current: Callable[[], PinnedSnapshot],
        is_past: Callable[[str], bool],
        file: Path,
        share: float = SHARE,
        settled_seconds: float = SETTLED_SECONDS,
    ) -> None:
        """`is_past` reports an ETag whether no micro-batch under another snapshot can come any more. What was
        sealed by is kept in `file`."""
        self._resources = resources
        self._current = current
        self._is_past = is_past
        self._file = file
        self._share = share
        self._settled_seconds = settled_seconds
        self._mark_before = ""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="background-sealing", daemon=True)

    def __enter__(self) -> BackgroundSealing:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join(timeout=60)

    def _run(self) -> None:
        pinned = self._current()
        wanted = protection_of(pinned.snapshot)
        # What the last run left undone need not settle.
        due, pause, is_known = _Due(self._settled_seconds), 0.0, False
        while not self._stop.wait(pause):
            pause = POLL_SECONDS
            if not is_known and not (is_known := self._knows_the_store()):
                pause = RETRY_SECONDS
                continue
            newest, now = self._current(), time.monotonic()
            if newest.etag != pinned.etag:
                before, known, pinned = wanted, pinned, newest
                if not protect_alike(known.snapshot, newest.snapshot):
                    wanted = protection_of(newest.snapshot)
                if wanted != before:
                    due.change(now)
                    # What is mapped until protection changes back, if it does, is not sealed by what was.
                    self._note("", mark_of(self._file) or "")
            if wanted == sealed_by(self._file):
                due.rest(now)
            elif now >= due.at:
                ended = self._try(pinned, wanted)
                if ended is _Ended.FAILED:
                    pause = RETRY_SECONDS
                elif ended is not _Ended.NOT_BEGUN:
                    due.rest(time.monotonic() + (AGAIN_SECONDS if ended is _Ended.INCOMPLETE else 0.0))

    def _knows_the_store(self) -> bool:
        """Forget what a store was sealed by that is there no more; False while it cannot be determined."""
        mark, protection = mark_of(self._file), sealed_by(self._file)
        try:
            if mark is None and protection is not None:
                log.info(
                    "an older idgraph noted what is sealed, and not of which store: all of it is looked through"
                )
                self._note("", "")
            elif not mark and protection:
                self._note(protection, self._next_mark())
            elif mark and not self._resources.store.remembers(mark):
                log.warning(
                    "the profile store was restored or rebuilt: all of it is looked through for what policy protects"
                )
                self._note("", "")
        except StoreError as error:
            log.warning("what is stored is not sealed yet: %s", error)
            return False
        return True

    def _next_mark(self) -> str:
        """Another one. The store keeps the last one beside it, which the file names until it is rewritten."""
        mark, named = secrets.token_hex(8), mark_of(self._file) or ""
        self._resources.store.remember(mark, self._mark_before if self._mark_before != named else "")
        self._mark_before = named
        return mark

    def _note(self, protection: str, mark: str) -> None:
        try:
            keep_sealed_by(self._file, protection, mark)
        except OSError as error:
            log.warning("%s: %s", self._file, error.strerror)

    def _try(self, pinned: PinnedSnapshot, wanted: str) -> _Ended:
        """Seal, unless an older micro-batch may come yet."""
        try:
            return self._seal(pinned.snapshot, wanted) if self._is_past(pinned.etag) else _Ended.NOT_BEGUN
        except IdgraphError as error:
            log.warning("what is stored is not sealed yet: %s", error)
        except Exception as error:
            # Only the type: the message of a stranger's exception may quote a profile.
            log.log(logging.ERROR, "what is stored is not sealed yet: %s", type(error).__name__)
        return _Ended.FAILED

    def _seal(self, snapshot: MetadataSnapshot, wanted: str) -> _Ended:
        point = ResumePoint(self._file, self._resources.sealer, "background-sealing")
        kept = point.read(wanted)
        after, skipped = str(kept.get("after", "")), bool(kept.get("spared"))
        was_cut_short = sealed_by(self._file) == ""
        sealing = StoredSealing(self._resources, CompiledSnapshot(snapshot))

        def keep(after: str, skipped: bool) -> None:
            # With what stands there while a run is interrupted.
            beside = {"protection": "", "mark": self._next_mark()}
            point.keep(wanted, {"after": after, "spared": skipped}, beside)

        # Before the first write: a run that is killed leaves old bytes in the files.
        keep(after, skipped)
        done: SealingProgress | None = None
        worked, started, changed = 0.0, time.monotonic(), False
        for done in sealing.run(PAGE, after):
            if done.looked_at:
                keep(done.after, skipped or _spares(done))
            spent = time.monotonic() - started
            worked += spent
            share = self._share if worked > BURST_SECONDS else max(self._share, BURST_SHARE)
            # Whatever `total` says: what has come since is looked at too.
            if self._stop.wait(spent / share - spent):
                log.info(
                    "sealing what is stored was interrupted after %d of %d profiles; the next run goes on there, "
                    "and `idgraph seal` does it at once",
                    done.looked_at,
                    done.total,
                )
                return _Ended.INCOMPLETE
            if (newest := self._current().snapshot) is not snapshot and protection_of(newest) != wanted:
                # What is mapped by that until protection changes back, if it does, is not sealed by this run.
                changed = True
            started = time.monotonic()
        refused = sealing.finish() if done is not None and (done.fragments or was_cut_short) else 0
        if done is not None:
            _show_report(done, refused, snapshot.version)
            if skipped or _spares(done) or refused:
                # All of it again: what was spared may be anywhere.
                keep_sealed_by(self._file, "", self._next_mark())
                return _Ended.INCOMPLETE
        keep_sealed_by(self._file, "" if changed else wanted, self._next_mark())
        return _Ended.COMPLETE


def _spares(done: SealingProgress) -> bool:
    return bool(done.failed or done.dead_letters)


def sealed_by(file: Path) -> str | None:
    """The protection that all that is stored was sealed by; empty if a run was interrupted or something could
    not be sealed, None if none began."""
    try:
        kept = json.loads(file.read_bytes())["protection"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return str(kept)


def mark_of(file: Path) -> str | None:
    """What the store has while it is the one that the file reports; empty if none was given to it yet, None if an
    older idgraph wrote the file, or there is none."""
    try:
        mark = json.loads(file.read_bytes()).get("mark")
    except (OSError, ValueError, AttributeError):
        return None
    return None if mark is None else str(mark)


def keep_sealed_by(file: Path, protection: str, mark: str = "") -> None:
    """Remember what all that is stored was sealed by, in the store of this mark. Raises OSError."""
    write_atomically(file, json.dumps({"protection": protection, "mark": mark}).encode())


def protection_of(snapshot: MetadataSnapshot) -> str:
    """A hash of all that protects in a snapshot: equal hashes seal the same values."""
    defaults, levels = snapshot.defaults, snapshot.levels
    protects = [
        # Names too: what was sealed by an idgraph that left them is looked at again.
        "names",
        # An exception below a protected attribute protects nothing, and tokens depend on the declared type.
        sorted(
            (each.path, str(each.encryption), str(each.status), str(each.data_type))
            for each in snapshot.attributes
            if not _is_as_undeclared(each, defaults)
        ),
        [str(defaults.encryption), str(defaults.detection)],
        [str(levels.policy(each).encryption) for each in Classification],
        sorted([place.type, place.path] for spec in snapshot.specs for place in spec.identifiers),
        sorted([spec.name, spec.id or ""] for spec in snapshot.specs),
    ]
    return hashlib.sha256(canonical.encode(protects)).hexdigest()


def protect_alike(known: MetadataSnapshot, newer: MetadataSnapshot) -> bool:
    """Whether two snapshots have equal hashes, reported by what changed; False where that does not report it."""
    changes = changes_between(known, "", newer, "")
    if (
        changes is None
        or changes.has_specs
        or known.defaults != newer.defaults
        or known.levels != newer.levels
    ):
        return False
    before = filter(None, (known.attribute(each.path) for each in changes.attributes))
    return all(_is_as_undeclared(each, newer.defaults) for each in (*changes.attributes, *before))


def _is_as_undeclared(each: AttributeMetadata, defaults: DiscoveryDefaults) -> bool:
    # Most of what events show: to look through all profiles for each would never end.
    is_open = each.encryption is EncryptionLevel.NONE and defaults.encryption is EncryptionLevel.NONE
    return is_open and each.status is AttributeStatus.DISCOVERED


class _Ended(Enum):
    """How a try ended."""

    NOT_BEGUN = "not begun"
    FAILED = "failed"
    INCOMPLETE = "incomplete"
    COMPLETE = "complete"


class _Due:
    """When to begin: protection has stayed the same for a while, or has changed for too long. Seconds of one
    clock."""

    def __init__(self, settled_seconds: float) -> None:
        self.at = 0.0
        self._settled_seconds = settled_seconds
        self._latest: float | None = None

    def change(self, now: float) -> None:
        """Protection is another one now."""
        if self._latest is None:
            self._latest = now + LATEST_SECONDS
        self.at = min(now + self._settled_seconds, self._latest)

    def rest(self, until: float) -> None:
        """All that there was to do is done until then; the next change is a first one."""
        self.at, self._latest = until, None


def _show_report(done: SealingProgress, refused: int, version: int) -> None:
    if done.fragments:
        log.info(
            "sealed %d values of %d profiles, as snapshot %d protects them",
            done.values.total(),
            done.fragments,
            version,
        )
    if refused:
        log.warning("the index refused %d profile(s), which search finds by what they held before", refused)
    if done.failed or done.readable or done.dead_letters:
        log.warning("some of what is stored stays in the clear; `idgraph seal` says what, and what to do")
