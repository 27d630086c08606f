"""Sealing what is stored when protection is turned on, beside the flow that follows the change.

A flow answers for what it wrote: it seals once no micro-batch that was begun under an older snapshot can come any
more, and remembers on disk what it has sealed by. Whatever cuts it short, the next run begins anew.
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ingestion.durable_files import write_atomically
from ingestion.snapshots import PinnedSnapshot
from ingestion.stored_sealing import SealingProgress, StoredSealing
from ingestion.workers import WorkerResources
from model import canonical
from model.classification import Classification
from model.errors import IdgraphError
from model.snapshots import MetadataSnapshot
from transforms.compiled import CompiledSnapshot

log = logging.getLogger(__name__)

PAGE = 100
POLL_SECONDS = 1.0
SETTLED_SECONDS = 10.0
"""How long protection must have stayed the same: while attributes are discovered it changes all the time."""
RETRY_SECONDS = 30.0
SHARE = 0.05
"""How much of one core, at most, and of the store's time to write."""


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
        """`is_past` tells of an ETag whether no micro-batch under another snapshot can come any more. What was
        sealed by is kept in `file`."""
        self._resources = resources
        self._current = current
        self._is_past = is_past
        self._file = file
        self._share = share
        self._settled_seconds = settled_seconds
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
        settled, pause = 0.0, 0.0
        while not self._stop.wait(pause):
            pause = POLL_SECONDS
            newest = self._current()
            if newest.etag != pinned.etag:
                pinned, before = newest, wanted
                wanted = protection_of(newest.snapshot)
                if wanted != before:
                    settled = time.monotonic() + self._settled_seconds
            if time.monotonic() >= settled and wanted != self._sealed_by() and not self._try(pinned, wanted):
                pause = RETRY_SECONDS

    def _try(self, pinned: PinnedSnapshot, wanted: str) -> bool:
        """Seal, unless an older micro-batch may come yet. Gives whether nothing failed."""
        try:
            if self._is_past(pinned.etag):
                self._seal(pinned.snapshot, wanted)
        except IdgraphError as error:
            log.warning("what is stored is not sealed yet: %s", error)
            return False
        except Exception as error:
            # Only the type: the message of a stranger's exception may quote a profile.
            log.log(logging.ERROR, "what is stored is not sealed yet: %s", type(error).__name__)
            return False
        return True

    def _seal(self, snapshot: MetadataSnapshot, wanted: str) -> None:
        was_cut_short = self._sealed_by() == ""
        sealing = StoredSealing(self._resources, CompiledSnapshot(snapshot))
        # Before the first write: a run that is killed leaves old bytes in the files.
        self._keep("")
        done: SealingProgress | None = None
        started = time.monotonic()
        for done in sealing.run(PAGE):
            spent = time.monotonic() - started
            if done.looked_at < done.total and self._stop.wait(spent / self._share - spent):
                log.info(
                    "sealing what is stored was cut short at %d of %d profiles; the next run begins anew, "
                    "and `idgraph seal` does it at once",
                    done.looked_at,
                    done.total,
                )
                return
            started = time.monotonic()
        if done is not None and (done.fragments or was_cut_short):
            sealing.finish()
        self._keep(wanted)
        if done is not None:
            _tell(done, snapshot.version)

    def _sealed_by(self) -> str | None:
        """The protection that all that is stored was sealed by; empty if a run was cut short, None if none began."""
        try:
            kept = json.loads(self._file.read_bytes())["protection"]
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return str(kept)

    def _keep(self, protection: str) -> None:
        write_atomically(self._file, json.dumps({"protection": protection}).encode())


def protection_of(snapshot: MetadataSnapshot) -> str:
    """A hash of all that protects in a snapshot: equal hashes seal the same values."""
    defaults, levels = snapshot.defaults, snapshot.levels
    protects = [
        sorted((each.path, str(each.encryption)) for each in snapshot.attributes if each.is_protected),
        [str(defaults.encryption), str(defaults.detection)],
        [str(levels.policy(each).encryption) for each in Classification],
        sorted([place.type, place.path] for spec in snapshot.specs for place in spec.identifiers),
    ]
    return hashlib.sha256(canonical.encode(protects)).hexdigest()


def _tell(done: SealingProgress, version: int) -> None:
    if done.fragments:
        log.info(
            "sealed %d values of %d profiles, as snapshot %d protects them",
            done.values.total(),
            done.fragments,
            version,
        )
    if done.failed or done.readable:
        log.warning("some of what is stored stays in the clear; `idgraph seal` says what, and what to do")
