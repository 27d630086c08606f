"""Schema changes that wait for the metadata service, as a queue in a file: memory holds only where it begins.

One JSON object a line. Lines are added at the end and taken from the front; what was taken goes from the
file when all of it was, or when it is the larger part of much. A crash in between gives some changes again,
which has no effect.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from idgraph.files import OWNER_ONLY, replacing, sync_folder
from idgraph.model.schema_changes import RefusedSchemaChange, SchemaChange

log = logging.getLogger(__name__)

MOST_BYTES = 64 << 20
"""A publisher of events can cause any number of refused attributes."""


class RefusedChanges:
    """The file, one JSON object a line; after a restart a change may stand in it again. Not safe for several threads."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.left_out = 0
        """How many changes this object did not write because the file had no room."""
        self._known: set[bytes] = set()
        self._is_torn = True

    def add(self, refused: Iterable[RefusedSchemaChange]) -> int:
        """Keep those that this object has not kept yet, while there is room, durably; returns the number of those without
        room. Raises OSError: all of it may be done again."""
        lines = {
            _key(change): json.dumps(change.model_dump(mode="json") | {"reason": reason}).encode() + b"\n"
            for change, reason in refused
        }
        new = {key: line for key, line in lines.items() if key not in self._known}
        descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, OWNER_ONLY)
        with os.fdopen(descriptor, "ab") as stream:
            size = os.fstat(descriptor).st_size
            if not size:
                sync_folder(self.file.parent)
            if size >= MOST_BYTES:
                return self._leave_out(len(new))
            # A crash may have cut the last line short: what follows is a line of its own.
            stream.write((b"\n" if self._is_torn and size else b"") + b"".join(new.values()))
            self._is_torn = True
            stream.flush()
            os.fsync(descriptor)
        self._is_torn = False
        self._known.update(new)
        return 0

    def _leave_out(self, count: int) -> int:
        if count and not self.left_out:
            log.warning(
                "%s has %d MB and takes no more: repair what refuses them, and move it away; then the next that are "
                "refused are kept in a new one",
                self.file,
                MOST_BYTES >> 20,
            )
        self.left_out += count
        return count


def _key(change: SchemaChange) -> bytes:
    """A hash of path and type: paths may be long."""
    return hashlib.blake2b(json.dumps([change.path, change.data_type]).encode(), digest_size=16).digest()


COMPACT_BYTES = 1 << 20
"""Less than this at the front of the file is left there."""


class WaitingChanges(NamedTuple):
    """The first changes of the queue, and where in the file they end."""

    changes: list[SchemaChange]
    end: int


class SchemaJournal:
    """The queue of one flow. Every method raises OSError; not safe for several threads or processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waiting = 0
        """How many changes are in the queue."""
        self._front = 0
        self._end = 0

    def open(self, seen: Callable[[SchemaChange], None]) -> None:
        """Find what an earlier run left; `seen` is given each change of it. A torn line is left out: its
        micro-batch was not done and comes again."""
        if not self.path.exists():
            return
        with self.path.open("rb") as stream:
            for line in stream:
                self._end += len(line)
                change = _parsed(line)
                if change is None:
                    log.warning("a torn line in %s was left out", self.path)
                else:
                    self.waiting += 1
                    seen(change)
        self._end_last_line()

    def append(self, changes: Iterable[SchemaChange]) -> None:
        """Add changes; durable when it returns, without effect when it raises."""
        lines = [change.model_dump_json().encode() + b"\n" for change in changes]
        is_new = not self.path.exists()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        with os.fdopen(descriptor, "wb") as stream:
            # Not simply at the end: a write that failed half-way may have left a piece there. And never
            # beyond it, should somebody have cut the file.
            end = min(self._end, stream.seek(0, os.SEEK_END))
            stream.truncate(end)
            stream.seek(end)
            stream.write(b"".join(lines))
            stream.flush()
            os.fsync(stream.fileno())
        if is_new:
            sync_folder(self.path.parent)
        self._front = min(self._front, end)
        self._end = end + sum(map(len, lines))
        self.waiting += len(lines)

    def first(self, limit: int) -> WaitingChanges:
        """Up to `limit` changes from the front, to be taken away with `take` once they are sent."""
        if not self.waiting:
            return WaitingChanges([], self._front)
        changes: list[SchemaChange] = []
        end = self._front
        with self.path.open("rb") as stream:
            stream.seek(self._front)
            for line in _until(stream, self._end - self._front):
                end += len(line)
                change = _parsed(line)
                if change is not None:
                    changes.append(change)
                if len(changes) == limit:
                    break
        if not changes:
            # Somebody cut the file: nothing of it can wait any more.
            self.waiting = 0
        return WaitingChanges(changes, end)

    def take(self, taken: WaitingChanges) -> None:
        """Take changes that `first` gave off the queue."""
        self.waiting -= len(taken.changes)
        self._front = taken.end
        if not self.waiting:
            os.truncate(self.path, 0)
            self._front = self._end = 0
        elif self._front >= COMPACT_BYTES and 2 * self._front >= self._end:
            self._compact()

    def _compact(self) -> None:
        # Half of the file or more went since the last time, so each byte is copied about once.
        with self.path.open("rb") as stream, replacing(self.path) as kept:
            stream.seek(self._front)
            shutil.copyfileobj(stream, kept)
        self._end -= self._front
        self._front = 0

    def _end_last_line(self) -> None:
        # Or the next line would be added to a torn one and be lost with it.
        with self.path.open("r+b") as stream:
            size = stream.seek(0, os.SEEK_END)
            if size:
                stream.seek(size - 1)
                if stream.read(1) != b"\n":
                    stream.write(b"\n")
                    self._end += 1


def _until(stream: Iterable[bytes], size: int) -> Iterator[bytes]:
    """The lines of the next so many bytes."""
    read = 0
    for line in stream:
        read += len(line)
        if read > size:
            return
        yield line


def _parsed(line: bytes) -> SchemaChange | None:
    try:
        return SchemaChange.model_validate_json(line)
    except ValidationError:
        return None
