"""Schema changes that wait for the metadata service, as a queue in a file: memory holds only where it begins.

One JSON object a line. Lines are added at the end and taken from the front; what was taken goes from the
file when all of it was. A crash in between gives some changes again, which has no effect.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from idgraph.files import OWNER_ONLY, replacing, sync_folder
from idgraph.model.schema_changes import SchemaChange

log = logging.getLogger(__name__)


class WaitingChanges(NamedTuple):
    """The first changes of the queue, and where in the file they end."""

    changes: list[SchemaChange]
    end: int


class SchemaJournal:
    """The queue of one flow. Every method raises OSError; not safe for several threads or processes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.waiting = 0
        """The number of changes in the queue."""
        self._front = 0
        self._end = 0

    def open(self, seen: Callable[[SchemaChange], None]) -> None:
        """Find what an earlier run left; `seen` is given each change of it. A torn line is left out: its
        micro-batch was not done and comes again."""
        if not self.path.exists():
            return
        with replacing(self.path) as kept, self.path.open("rb") as stream:
            for line in stream:
                try:
                    seen(SchemaChange.model_validate_json(line))
                except ValidationError:
                    log.warning("a torn line in %s was left out", self.path)
                else:
                    self.waiting += 1
                    self._end += kept.write(line.rstrip(b"\n") + b"\n")

    def append(self, changes: Iterable[SchemaChange]) -> None:
        """Add changes; durable when it returns, without effect when it raises."""
        lines = [change.model_dump_json().encode() + b"\n" for change in changes]
        is_new = not self.path.exists()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, OWNER_ONLY)
        with os.fdopen(descriptor, "wb") as stream:
            # Not simply at the end: a write that failed half-way may have left a piece there. And never beyond it,
            # should somebody have cut the file.
            self._end = min(self._end, stream.seek(0, os.SEEK_END))
            self._front = min(self._front, self._end)
            stream.truncate(self._end)
            stream.seek(self._end)
            stream.write(b"".join(lines))
            stream.flush()
            os.fsync(stream.fileno())
        if is_new:
            sync_folder(self.path.parent)
        self._end += sum(map(len, lines))
        self.waiting += len(lines)

    def first(self, limit: int) -> WaitingChanges:
        """Up to `limit` changes from the front, to be taken away with `take` once they are sent."""
        if not self.waiting:
            return WaitingChanges([], self._front)
        with self.path.open("rb") as stream:
            stream.seek(self._front)
            lines = list(islice(stream, min(limit, self.waiting)))
            changes = [SchemaChange.model_validate_json(line) for line in lines]
        if not changes:
            # Somebody cut the file: nothing of it can wait any more.
            self.waiting = 0
        return WaitingChanges(changes, self._front + sum(map(len, lines)))

    def take(self, taken: WaitingChanges) -> None:
        """Take changes that `first` gave off the queue."""
        self.waiting -= len(taken.changes)
        self._front = taken.end
        if not self.waiting:
            os.truncate(self.path, 0)
            self._front = self._end = 0
