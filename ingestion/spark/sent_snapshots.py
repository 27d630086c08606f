"""The snapshot on its way from the driver to the workers.

It is broadcast, so that each worker process fetches it once, and compressed: PySpark writes a broadcast to a file, and a
cluster's Spark encrypts it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from idgraph.files import write_unflushed
from idgraph.model.snapshots import MetadataSnapshot, PinnedSnapshot
from idgraph.snapshot_file import SnapshotFile, kept_snapshot
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


class SentSnapshot(NamedTuple):
    """A snapshot as it is broadcast: `content.value` are the bytes of `packed`."""

    etag: str
    content: Any

    def compiled(self, previous: CompiledSnapshot | None) -> CompiledSnapshot:
        """The compiled snapshot, with the specs of `previous` that did not change."""
        return CompiledSnapshot(self.snapshot(), previous)

    def snapshot(self) -> MetadataSnapshot:
        """The snapshot."""
        return MetadataSnapshot.model_validate_json(zlib.decompress(self.content.value))


def packed(snapshot: MetadataSnapshot) -> bytes:
    """The bytes that are broadcast."""
    return zlib.compress(snapshot.model_dump_json().encode(), 1)


class SnapshotSender:
    """Broadcasts a snapshot once. Not safe for several threads.

    `broadcast` sends bytes to all workers; its result has `value` there, and `destroy` here.
    """

    def __init__(self, broadcast: Callable[[bytes], Any]) -> None:
        self._broadcast = broadcast
        self._sent: SentSnapshot | None = None

    def sent(self, pinned: PinnedSnapshot) -> SentSnapshot:
        """The snapshot as a worker reads it."""
        if self._sent is None or self._sent.etag != pinned.etag:
            self.close()
            self._sent = SentSnapshot(pinned.etag, self._broadcast(packed(pinned.snapshot)))
        return self._sent

    def close(self) -> None:
        """Forget what the workers were given."""
        if self._sent is not None:
            self._sent.content.destroy()
        self._sent = None
