"""Schema changes that the metadata service refused for good, as a file for whoever repairs them: a JSON object a line, each
change once."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from idgraph.files import OWNER_ONLY, sync_folder
from idgraph.model.schema_changes import RefusedSchemaChange

log = logging.getLogger(__name__)

MOST_LINES = 100_000
"""Whoever may publish events can have any number of attributes found, and refused."""


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
