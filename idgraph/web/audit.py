"""The audit log: one JSON object per line, each with a keyed hash over itself and the hash of the line before.

`verify` finds a line that was altered, removed or inserted without the key, and a log that was cut, unless at its
end. For that, compare the head that it reports with one that was noted elsewhere.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, Protocol

from idgraph.files import OWNER_ONLY, file_lock
from idgraph.model import canonical
from idgraph.model.errors import StoreError

PURPOSE = "audit-log"
_MAC = "mac"
_FIRST = ""
_TAIL_BYTES = 1 << 16
MOST_LOOKED_BYTES = 8 << 20
"""One page of a log looks at so much."""


class AuditReport(NamedTuple):
    """The number of whole entries, the hash of the last of them, and the line (from 1) of the first that is not
    whole."""

    entries: int
    head: str
    broken_line: int | None


class AuditLines(Protocol):
    """The lines of a log, which are only ever appended. Safe for several threads and processes. Raises StoreError."""

    @property
    def place(self) -> str:
        """The place of the lines, for messages."""
        ...

    def append(self, make: Callable[[Sequence[bytes]], list[bytes]]) -> None:
        """Append what `make` makes of the last two lines; nobody else appends meanwhile. It may be called again.
        Durable when it returns."""
        ...

    def read(self) -> list[bytes]:
        """All lines."""
        ...

    def backward(self, before: int | None) -> Iterator[tuple[int, bytes]]:
        """The lines, the newest first, from a place backward, each with the place of those before it: 0 at the beginning."""
        ...

    def set_aside(self) -> str | None:
        """Begin again without a line; returns where the lines are now, None if there was none."""
        ...


class AuditFile:
    """`AuditLines` in one file."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self.place = str(file)

    def append(self, make: Callable[[Sequence[bytes]], list[bytes]]) -> None:
        with self._named_errors(), file_lock(self._file.with_name(f".{self._file.name}.lock")):
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            with os.fdopen(os.open(self._file, flags, OWNER_ONLY), "rb+") as stream:
                end = stream.seek(0, os.SEEK_END)
                lines = _lines_before(stream, end)
                if lines and not lines[-1].endswith(b"\n"):
                    # A line that a crash tore was never reported as written.
                    end = stream.truncate(end - len(lines[-1]))
                    lines = _lines_before(stream, end)
                if len(lines) == 1:
                    lines = [*_lines_before(stream, end - len(lines[0])), *lines]
                stream.write(b"".join(make(lines)))
                stream.flush()
                os.fsync(stream.fileno())

    def read(self) -> list[bytes]:
        with self._named_errors():
            return self._file.read_bytes().splitlines() if self._file.exists() else []

    def backward(self, before: int | None) -> Iterator[tuple[int, bytes]]:
        with self._named_errors():
            if not self._file.exists():
                return
            with self._file.open("rb") as stream:
                end = stream.seek(0, os.SEEK_END)
                place = end if before is None else max(0, min(end, before))
                while place > 0:
                    for line in reversed(_lines_before(stream, place)):
                        place -= len(line)
                        yield place, line

    def set_aside(self) -> str | None:
        if not self._file.exists():
            return None
        kept = self._file.with_name(f"audit-{datetime.now(UTC):%Y%m%dT%H%M%S%f}.jsonl")
        with self._named_errors():
            self._file.rename(kept)
        return str(kept)

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise StoreError(f"{self._file}: {error.strerror}") from None


class AuditLog:
    """The chain of entries. Safe for several threads and processes."""

    def __init__(self, lines: AuditLines, key: bytes) -> None:
        self._lines = lines
        self.place = lines.place
        self._key = key
        self.set_aside = lines.set_aside
        """Begins a new chain under a new keyring; returns where the old one is, None without one. Raises StoreError."""

    def append(self, *entries: Mapping[str, Any]) -> None:
        """Durable when it returns. Raises StoreError: then nothing may be shown that the entries were to record."""

        def make(last: Sequence[bytes]) -> list[bytes]:
            self._require_own(last)
            return self._chained(_last_mac(last), entries)

        if entries:
            self._lines.append(make)

    def _require_own(self, lines: Sequence[bytes]) -> None:
        """The last entry was written with this key: else no later entry could be verified. Raises StoreError."""
        entry = _decoded(lines[-1]) if lines else None
        if lines and (entry is None or not self._is_whole(entry, _last_mac(lines[:-1]))):
            raise StoreError(
                f"{self.place}: the last entry was altered, or written with another keyring, so nothing is done that belongs "
                "into it: restore the keyring of these profiles, or move the file to a safe place"
            )

    def _is_whole(self, entry: dict[str, Any], head: str) -> bool:
        mac = entry.pop(_MAC, None)
        return isinstance(mac, str) and hmac.compare_digest(mac, chained(self._key, head, entry))

    def verify(self) -> AuditReport:
        """Check all of it. Raises StoreError for one that cannot be read."""
        lines = self._lines.read()
        head = _FIRST
        for number, line in enumerate(lines, start=1):
            entry = _decoded(line)
            mac = entry.get(_MAC) if entry is not None else None
            if entry is None or not self._is_whole(entry, head):
                return AuditReport(number - 1, head, number)
            head = str(mac)
        return AuditReport(len(lines), head, None)

    def newest(
        self, limit: int, before: int | None = None, takes: Callable[[dict[str, Any]], bool] = lambda _: True
    ) -> tuple[list[dict[str, Any]], int | None]:
        """Up to `limit` entries that are wanted, the newest first, from a place backward; and the place to go on at, None
        at the beginning. Raises StoreError."""
        found: list[dict[str, Any]] = []
        place, looked = 0, 0
        for place, line in self._lines.backward(before):  # noqa: B007 - the last one is the answer
            looked += len(line)
            entry = _decoded(line)
            if entry is not None and takes(entry):
                entry.pop(_MAC, None)
                found.append(entry)
            if len(found) == limit or looked >= MOST_LOOKED_BYTES:
                break
        return found, place or None

    def _chained(self, head: str, entries: Iterable[Mapping[str, Any]]) -> list[bytes]:
        lines, at = [], datetime.now(UTC).isoformat(timespec="milliseconds")
        for entry in entries:
            written = {"at": at, **entry}
            written[_MAC] = head = chained(self._key, head, written)
            lines.append(canonical.encode(written) + b"\n")
        return lines


def _lines_before(stream: BinaryIO, place: int) -> list[bytes]:
    """Some whole lines that end at a place, at least one."""
    size = _TAIL_BYTES
    while True:
        start = max(0, place - size)
        stream.seek(start)
        content = stream.read(place - start)
        first = content.find(b"\n", 0, -1) + 1 if start else 0
        if first or not start:
            return content[first:].splitlines(keepends=True)
        size *= 2


def _last_mac(lines: Sequence[bytes]) -> str:
    for line in reversed(lines):
        entry = _decoded(line)
        if entry is not None and isinstance(entry.get(_MAC), str):
            return str(entry[_MAC])
    return _FIRST


def _decoded(line: bytes) -> dict[str, Any] | None:
    try:
        entry = canonical.decode(line)
    except canonical.MalformedJSON:
        return None
    return entry if isinstance(entry, dict) else None


def chained(key: bytes, previous: str, entry: Mapping[str, Any]) -> str:
    """The keyed hash of an entry and of the hash of the one before."""
    content = previous.encode() + b"\n" + canonical.encode(entry)
    return hmac.new(key, content, hashlib.sha256).hexdigest()
