"""Which snapshot a micro-batch was begun with, on disk until the next one begins.

A batch that a crash interrupted is retried, and part of its events may be committed. It must be
processed with the snapshot it was begun with, though a newer one is there: each event has exactly one
snapshot (law 4).
"""

from __future__ import annotations

import json
from pathlib import Path

from idgraph.files import write_unflushed
from ingestion.metadata.snapshot_file import PinnedSnapshot, SnapshotFile, kept_snapshot
from ingestion.spark.checkpoints import is_done, query_id

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
        # Of no use where Spark's checkpoint, which nobody flushes either, has lost the batch to a power cut.
        write_unflushed(self._folder / _BATCH, content)
        return newest

    def has_begun(self, batch: str) -> bool:
        """Whether the batch is pinned already: it was interrupted, and is retried."""
        return self._begun_with(batch) is not None

    def unpin(self) -> None:
        """Let the batch be begun again with the newest snapshot: it was refused, and a spec may be repaired."""
        (self._folder / _BATCH).unlink(missing_ok=True)

    def unfinished(self) -> str | None:
        """The ETag of the snapshot of a batch that Spark has not noted as done, and so gives again, if there is
        one. A batch of a checkpoint that was removed never comes again."""
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
