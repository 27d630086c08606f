"""Tombstones in a file of their own, apart from the store, so that a restored store does not lose them.

JSON Lines: {"name": keyed hash in hex, "until": epoch milliseconds, "version": number}, one for each
erasure of a fragment, only ever appended. Files of one keyring are joined by writing one behind the other.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import msgspec

from idgraph.files import file_lock, sync_folder
from idgraph.model import canonical
from idgraph.model.errors import StoreError
from idgraph.model.tombstones import NO_EPOCH, Tombstone

log = logging.getLogger(__name__)


class _Line(msgspec.Struct):
    name: str
    until: int
    version: int


_decode = msgspec.json.Decoder(_Line).decode


class TombstoneFile:
    """All tombstones by name. Made when first written, for its owner only; safe for several processes."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While a lock is held, a file beside this one. Raises StoreError."""
        lock = self._path.with_suffix(".lock")

        def waiting() -> None:
            log.warning(
                "%s: another process erases persons or cancels an erasure just now; waiting for its end", lock
            )

        with ExitStack() as stack:
            try:
                stack.enter_context(file_lock(lock, waiting))
            except OSError as error:
                raise StoreError(f"{lock}: {error.strerror}") from None
            yield

    def append(self, tombstones: Mapping[bytes, Tombstone]) -> None:
        """Durable when it returns. Only within `alone`. Raises StoreError."""
        lines = [
            canonical.encode({"name": name.hex(), "until": each.until, "version": each.version}) + b"\n"
            for name, each in sorted(tombstones.items())
        ]
        try:
            descriptor = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
            with os.fdopen(descriptor, "ab") as stream:
                size = os.fstat(descriptor).st_size
                if not size:
                    # The name of a new file is in its folder: without it a later step of the erasure might
                    # outlive this one. Before the content, which tells the next one that it was done.
                    sync_folder(self._path.parent)
                # A power cut may have left a part of a line.
                torn = size > 0 and os.pread(descriptor, 1, size - 1) != b"\n"
                stream.write(b"\n" * torn + b"".join(lines))
                stream.flush()
                os.fsync(descriptor)
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror}") from None

    def read(self) -> dict[bytes, Tombstone]:
        """Raises StoreError. A line that was interrupted is reported and left out: its erasure did not go on."""
        try:
            lines = self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return {}
        except OSError as error:
            raise StoreError(f"{self._path}: {error.strerror}") from None
        found: dict[bytes, Tombstone] = {}
        for number, line in enumerate(lines, 1):
            try:
                read = _decode(line)
                name, tombstone = bytes.fromhex(read.name), Tombstone(read.until, read.version)
            except (msgspec.MsgspecError, ValueError):
                log.warning("%s: line %d is no tombstone", self._path, number)
                continue
            joined = tombstone.joined(found.get(name, tombstone))
            # A later line cancels it.
            found[name] = joined._replace(until=NO_EPOCH) if tombstone.until == NO_EPOCH else joined
        return found
