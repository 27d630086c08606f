"""The snapshot on its way from the driver to the workers: whole once, then the changes from version to version.

Each part is broadcast, so that each worker process fetches it once. It is compressed: PySpark writes a broadcast to a
file, and a cluster's Spark encrypts it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from idgraph.files import write_unflushed
from idgraph.model.snapshot_changes import SnapshotChanges, changes_between
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.snapshot_file import PinnedSnapshot, SnapshotFile, kept_snapshot, most_changes
from ingestion.spark.checkpoints import is_done, query_id
from transforms.spec.mapping import CompiledSnapshot

_BATCH = "batch.json"


class BatchPins:
    """Pins of one flow; `folder` is the flow's own. Not safe for several flows in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._snapshot = SnapshotFile(folder / "batch-snapshot.json")

    def pin(self, batch: str, newest: PinnedSnapshot) -> PinnedSnapshot:
        """The snapshot for a batch: the one it was begun with before, else `newest`, remembered."""
        begun_with = self._begun_with(batch)
        if begun_with is not None:
            return begun_with
        # The snapshot before its name: a crash in between pins nothing.
        self._snapshot.keep(newest)
        content = json.dumps({"batch": batch, "etag": newest.etag}).encode()
        # It is of no use if Spark's checkpoint, which nobody flushes either, has lost the batch to a power cut.
        write_unflushed(self._folder / _BATCH, content)
        return newest

    def has_begun(self, batch: str) -> bool:
        """Whether the batch is pinned already: it was interrupted, and is retried."""
        return self._begun_with(batch) is not None

    def unpin(self) -> None:
        """Let the next run of the batch take the newest snapshot: it was refused, and a spec may be repaired."""
        (self._folder / _BATCH).unlink(missing_ok=True)

    def unfinished(self) -> str | None:
        """The ETag of the snapshot of a batch that Spark has not noted as done, and so runs again; None if there is no such
        batch. A batch of a removed checkpoint never runs again."""
        try:
            pinned = json.loads((self._folder / _BATCH).read_bytes())
            _, query, number = str(pinned["batch"]).rsplit("/", 2)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        checkpoint = self._folder / "checkpoint"
        if query_id(checkpoint) != query or is_done(checkpoint, number):
            return None
        return str(pinned.get("etag"))

    def _begun_with(self, batch: str) -> PinnedSnapshot | None:
        try:
            pinned = json.loads((self._folder / _BATCH).read_bytes())
        except (FileNotFoundError, ValueError):
            return None
        if pinned.get("batch") != batch:
            return None
        kept = kept_snapshot(self._snapshot.path)
        return kept if kept is not None and kept.etag == pinned.get("etag") else None


MOST_STEPS = 200
"""The most changes in a row: a new worker process reads all of them."""


class SentSnapshot(NamedTuple):
    """Broadcasts: the whole snapshot of the ETag `base`, and each later ETag with the changes that lead to it."""

    base: str
    whole: Any
    changes: tuple[tuple[str, Any], ...] = ()

    @property
    def etag(self) -> str:
        return self.changes[-1][0] if self.changes else self.base

    def compiled(self, known: tuple[str, CompiledSnapshot] | None) -> CompiledSnapshot:
        """The compiled snapshot. It is made from `known`, an ETag and its snapshot, where that is an earlier version; `known`
        must not be used afterwards."""
        etag, last = known or ("", None)
        steps = self._steps_from(etag)
        if last is None or steps is None:
            snapshot = MetadataSnapshot.model_validate_json(zlib.decompress(self.whole.value))
            for _, changes in self.changes:
                snapshot = _read(changes).applied_to(snapshot)
            return CompiledSnapshot(snapshot, last)
        for _, changes in steps:
            last = last.after(_read(changes))
        return last

    def _steps_from(self, etag: str) -> tuple[tuple[str, Any], ...] | None:
        known = [self.base, *(each for each, _ in self.changes)]
        return self.changes[known.index(etag) :] if etag in known else None


def _read(changes: Any) -> SnapshotChanges:
    return SnapshotChanges.model_validate_json(zlib.decompress(changes.value))


def packed(content: MetadataSnapshot | SnapshotChanges) -> bytes:
    """As it is broadcast."""
    return zlib.compress(content.model_dump_json().encode(), 1)


class SnapshotSender:
    """Sends the changes since its last call. Not safe for several threads.

    `broadcast` sends bytes to all workers; its result has `value` there, and `destroy` here.
    """

    def __init__(self, broadcast: Callable[[bytes], Any]) -> None:
        self._broadcast = broadcast
        self._last: PinnedSnapshot | None = None
        self._sent: SentSnapshot | None = None
        self._sizes = [0]

    def sent(self, pinned: PinnedSnapshot) -> SentSnapshot:
        """The snapshot as a worker reads it."""
        if self._sent is None or self._last is None or self._last.etag != pinned.etag:
            self._sent = self._next(pinned)
            self._last = pinned
        return self._sent

    def close(self) -> None:
        """Forget what the workers were given."""
        if self._sent is not None:
            for each in (self._sent.whole, *(changes for _, changes in self._sent.changes)):
                each.destroy()
        self._last = self._sent = None

    def _next(self, pinned: PinnedSnapshot) -> SentSnapshot:
        last, sent = self._last, self._sent
        changes = None
        if last is not None:
            changes = changes_between(last.snapshot, last.etag, pinned.snapshot, pinned.etag)
        if last is None or sent is None or changes is None:
            return self._again(pinned)
        content = packed(changes)
        whole, *others = self._sizes
        if len(others) == MOST_STEPS or sum(others) + len(content) > most_changes(whole):
            # From the version that the workers have, so that they need not read the whole.
            sent = self._again(last)
        step = pinned.etag, self._broadcast(content)
        self._sizes.append(len(content))
        return sent._replace(changes=(*sent.changes, step))

    def _again(self, pinned: PinnedSnapshot) -> SentSnapshot:
        self.close()
        content = packed(pinned.snapshot)
        self._sizes = [len(content)]
        return SentSnapshot(pinned.etag, self._broadcast(content))
