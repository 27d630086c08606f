"""A snapshot on disk."""

from __future__ import annotations

import json
import logging
from pathlib import Path

from pydantic import ValidationError

from idgraph.files import write_atomically
from idgraph.model.snapshots import MetadataSnapshot, PinnedSnapshot

log = logging.getLogger(__name__)


class SnapshotFile:
    """Keeps the newest snapshot in a file, which `kept_snapshot` reads: at any moment, in any process."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept = ""

    def keep(self, pinned: PinnedSnapshot) -> None:
        """Durable when it returns. Raises OSError: what was kept before is what is read then."""
        if self._kept != pinned.etag:
            write_atomically(self.path, snapshot_file_content(pinned))
            self._kept = pinned.etag


def snapshot_file_content(pinned: PinnedSnapshot) -> bytes:
    """A snapshot as `kept_snapshot` reads it."""
    snapshot = pinned.snapshot.model_dump_json().encode()
    return b'{"etag":%s,"snapshot":%s}' % (json.dumps(pinned.etag).encode(), snapshot)


def kept_snapshot(file: Path) -> PinnedSnapshot | None:
    """The last snapshot that was kept in a file, if there is one that can be read."""
    try:
        whole, *changes = file.read_bytes().split(b"\n")
        if changes:
            log.warning(
                "%s: was written by an earlier idgraph, and begins anew with the service's answer", file
            )
            return None
        kept = json.loads(whole)
        return PinnedSnapshot(kept["etag"], MetadataSnapshot.model_validate(kept["snapshot"]))
    except FileNotFoundError:
        pass
    except OSError as error:
        log.warning("the snapshot in %s cannot be read: %s", file, error.strerror)
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        log.warning("the snapshot in %s cannot be read: %s", file, type(error).__name__)
    return None
