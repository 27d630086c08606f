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
from typing import IO, NamedTuple

from pydantic import ValidationError

from idgraph.files import OWNER_ONLY, replacing, sync_folder
from idgraph.model.schema_changes import RefusedSchemaChange, SchemaChange

MOST_LINES = 100_000
"""A publisher of events can cause any number of refused attributes."""


class RefusedChanges:
    """The file. What was read of it is not read again; others may write to it, or move it away. Not safe for several
    threads."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.left_out = 0
        """How many changes this object did not write because the file had no room."""
        self._forget(0)

    def add(self, refused: Iterable[RefusedSchemaChange]) -> int:
        """Keep those that are not kept yet, as far as there is room, durably; gives how many there was no room for.
        Raises OSError: all of it may be done again."""
        descriptor = os.open(self.file, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, OWNER_ONLY)
        with os.fdopen(descriptor, "a+b") as stream:
            status = os.fstat(descriptor)
            if not status.st_size:
                # Its name is durable before its content is, so that it is so whatever fails next.
                sync_folder(self.file.parent)
            if status.st_ino != self._inode or status.st_size < self._read:
                self._forget(status.st_ino)
            self._read_on(stream)
            new = list(self._new(refused))
            written = new[: MOST_LINES - self._lines]
            if written:
                # A crash may have cut the last line short: what follows is a line of its own.
                stream.write(b"".join([b"\n" if self._is_torn else b"", *written]))
            stream.flush()
            # Also where nothing is new: an earlier try may have failed just here.
            os.fsync(descriptor)
        return self._leave_out(len(new) - len(written))

    def _forget(self, inode: int) -> None:
        self._inode = inode
        self._read = self._lines = 0
        self._is_torn = self._is_reported = False
        self._known: set[bytes] = set()

    def _read_on(self, stream: IO[bytes]) -> None:
        """Look at the lines that came since, a line in memory at a time. Of a file without room none is looked at: nothing
        more will be written to it."""
        stream.seek(self._read)
        while self._lines < MOST_LINES and (line := stream.readline()):
            self._read += len(line)
            self._is_torn = not line.endswith(b"\n")
            self._lines += 1
            if (key := _key_of(line)) is not None:
                self._known.add(key)

    def _new(self, refused: Iterable[RefusedSchemaChange]) -> Iterator[bytes]:
        """The lines of those that are not in the file, each once."""
        seen: set[bytes] = set()
        for change, reason in refused:
            key = _key(change.path, change.data_type)
            if key not in self._known and key not in seen:
                seen.add(key)
                yield json.dumps(change.model_dump(mode="json") | {"reason": reason}).encode() + b"\n"

    def _leave_out(self, count: int) -> int:
        self.left_out += count
        if count and not self._is_reported:
            self._is_reported = True
            log.warning(
                "%s has %s lines and takes no more: repair what refuses them, and move it away; then the next that are "
                "refused are kept in a new one",
                self.file,
                f"{MOST_LINES:,}",
            )
        return count


def _key(path: str, data_type: str) -> bytes:
    """A hash of both: paths may be long."""
    return hashlib.blake2b(json.dumps([path, data_type]).encode(), digest_size=16).digest()


def _key_of(line: bytes) -> bytes | None:
    try:
        change = json.loads(line)
        return _key(change["path"], change["data_type"])
    except (ValueError, KeyError, TypeError):
        return None


log = logging.getLogger(__name__)

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
