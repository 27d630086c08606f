"""A snapshot on disk: whole, and behind it a line for each later one with what changed."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from idgraph.files import write_atomically
from idgraph.model.errors import MetadataError
from idgraph.model.snapshot_changes import SnapshotChanges, changes_between, joined
from idgraph.model.snapshots import MetadataSnapshot

log = logging.getLogger(__name__)

LEAST_CHANGES = 1 << 20
CHANGES_SHARE = 4
"""Changes are kept until they are a fourth of the whole, or this many bytes: then the whole is rewritten."""


class PinnedSnapshot(NamedTuple):
    """A snapshot with the ETag that distinguishes it from all others."""

    etag: str
    snapshot: MetadataSnapshot


class SnapshotFile:
    """Keeps the newest snapshot in a file, which `kept_snapshot` reads: at any moment, in any process. One process
    keeps in a file at a time, and what it keeps first is the whole.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._kept: PinnedSnapshot | None = None
        self._whole = self._changes = 0

    def keep(self, pinned: PinnedSnapshot) -> None:
        """Durable when it returns. Raises OSError: what was kept before may be what is read then."""
        if self._kept is not None and self._kept.etag == pinned.etag:
            return
        line = self._line(pinned)
        self._kept = None  # until all of it is written
        if line is None:
            content = snapshot_file_content(pinned)
            write_atomically(self.path, content)
            self._whole, self._changes = len(content), 0
        else:
            _append(self.path, line)
            self._changes += len(line)
        self._kept = pinned

    def _line(self, pinned: PinnedSnapshot) -> bytes | None:
        if self._kept is None:
            return None
        changes = changes_between(self._kept.snapshot, self._kept.etag, pinned.snapshot, pinned.etag)
        if changes is None:
            return None
        # A line of its own also behind one that a crash tore.
        line = b"\n" + changes.model_dump_json().encode()
        return line if self._changes + len(line) <= most_changes(self._whole) else None


def most_changes(whole: int) -> int:
    """How many bytes of changes are kept beside a whole snapshot of so many bytes."""
    return max(LEAST_CHANGES, whole // CHANGES_SHARE)


def snapshot_file_content(pinned: PinnedSnapshot) -> bytes:
    """A whole snapshot as `kept_snapshot` reads it."""
    snapshot = pinned.snapshot.model_dump_json().encode()
    return b'{"etag":%s,"snapshot":%s}' % (json.dumps(pinned.etag).encode(), snapshot)


def kept_snapshot(file: Path) -> PinnedSnapshot | None:
    """The last snapshot that was kept in a file, if there is one that can be read."""
    try:
        whole, *lines = file.read_bytes().split(b"\n")
        kept = json.loads(whole)
        pinned = PinnedSnapshot(kept["etag"], MetadataSnapshot.model_validate(kept["snapshot"]))
    except FileNotFoundError:
        return None
    except OSError as error:
        log.warning("the snapshot in %s cannot be read: %s", file, error.strerror)
        return None
    except (ValueError, KeyError, TypeError, ValidationError) as error:
        log.warning("the snapshot in %s cannot be read: %s", file, type(error).__name__)
        return None
    followed = list(_followed(pinned.etag, lines))
    if not followed:
        return pinned
    try:
        # All at once: each by itself would copy all attributes.
        return PinnedSnapshot(followed[-1].etag, joined(followed).applied_to(pinned.snapshot))
    except MetadataError as error:
        log.warning("the changes of the snapshot in %s are left out: %s", file, error)
        return pinned


def _followed(etag: str, lines: Iterable[bytes]) -> Iterator[SnapshotChanges]:
    """Those that go on from one another. A line that a crash tore leads nowhere."""
    for line in lines:
        try:
            changes = SnapshotChanges.model_validate_json(line)
        except ValidationError:
            continue
        if changes.since == etag:
            etag = changes.etag
            yield changes


def _append(file: Path, line: bytes) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
    try:
        if os.write(descriptor, line) != len(line):
            raise OSError(0, "not all of it could be written")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
