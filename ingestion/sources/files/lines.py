"""Reading JSON Lines files, whole or gzip'd, with the line as position and damage as a value.

Spark reports which files are new; this reads them. Spark's own text reader gives no line numbers, and for a
truncated gzip file either fails the whole batch or drops the rest in silence (docs/adr/0006-files.md).
"""

from __future__ import annotations

import errno
import functools
import gzip
import hashlib
import os
import re
import stat
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import BufferedIOBase
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, NamedTuple

from idgraph.model.counts import BatchCounts
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import SourceUnavailableError
from idgraph.model.events import RawRecord
from idgraph.model.sources import FileSource
from ingestion.sources.files.taken import folder_of, path_below, source_of
from transforms.privacy.blind_index import BlindIndex
from transforms.schema.detection import shaped_key

if TYPE_CHECKING:
    from ingestion.sources.stream import SparkRow

CHUNK = 1 << 17
"""Bytes that are read at once: their lines are still in the processor's cache when they are cut out."""
MAX_NAME = 800

# Not zlib's words: they quote the file's first bytes, and its checksum.
_DAMAGES: dict[type[Exception], str] = {
    EOFError: "it ends too early",
    zlib.error: "its compressed data is damaged",
    gzip.BadGzipFile: "it is not gzip, or its checksum is wrong",
}
_BOM = b"\xef\xbb\xbf"


class DamagedRecord(NamedTuple):
    """A record that could not be read or decrypted: `record.value` holds the bytes that there were.

    `file` is the path of its file, where these bytes do not distinguish the record from others; not to be shown.
    """

    record: RawRecord
    reason: DeadLetterReason
    detail: str
    stage: str = "read"
    file: str = ""

    @property
    def source(self) -> str:
        """The configured source that it is of."""
        return self.record.source


def read_records(
    path: Path,
    source: str,
    max_bytes: int,
    root: Path | None = None,
    shown: Callable[[str], str] = str,
    is_last: bool = True,
    follow_links: bool = False,
    closed: Sequence[Path] = (),
) -> Iterator[RawRecord | DamagedRecord]:
    """The lines of a file in order, blank ones left out; at most about `max_bytes` in memory.

    Positions name the file below `root`, the source's directory, by default the file's own; `shown` says as
    what, for names that are personal data.
    Damage is given in place of the lines that it hides: the lines before it are whole. So is a file that is no regular
    one, that lies below one of the paths `closed`, or, unless `follow_links`, that a link leads to.

    An error of the file's disk or share may pass: it raises SourceUnavailableError, which names the position, unless
    `is_last` says that nobody reads the file again.
    """
    number = 0
    name = _name(path, root, shown)
    try:
        with (
            _open(path, path.parent if root is None else root, follow_links, closed) as file,
            _unpacked(path, file) as stream,
        ):
            for lines, length in _blocks(stream, max_bytes):
                if not number:
                    lines[0] = lines[0].removeprefix(_BOM)
                if length > max_bytes:
                    number += 1
                    record = RawRecord(source, _position(name, number), lines.pop(0))
                    detail = f"the record has {length} bytes, more than {max_bytes}; the first {max_bytes} are kept here"
                    yield DamagedRecord(record, DeadLetterReason.TOO_LARGE, detail, file=str(path))
                for line in lines:
                    number += 1
                    if line and not line.isspace():
                        yield _new(RawRecord, (source, f"file:{name}#{number}", line))
    except _Damage as damage:
        position = _position(name, number + 1)
        if damage.may_pass and not is_last:
            raise SourceUnavailableError(f"source {source}: {position}: {damage.reason}") from None
        record = RawRecord(source, position, damage.partial)
        detail = f"the file cannot be read from this line on: {damage.reason}; publish it again whole"
        yield DamagedRecord(record, DeadLetterReason.CORRUPT_SOURCE, detail, file=str(path))


def last_lines(
    path: Path, root: Path, follow_links: bool, closed: Sequence[Path], most_bytes: int
) -> list[bytes]:
    """The last whole lines of a file, as far as they are in so many bytes at its end; of a compressed one, in so many at its
    beginning. None where `read_records` would give damage."""
    try:
        with _open(path, root, follow_links, closed) as file, _unpacked(path, file) as stream:
            skipped = 0 if path.suffix == ".gz" else max(0, size_of(path) - most_bytes)
            file.seek(skipped)
            content = stream.read(most_bytes)
    except (_Damage, OSError, EOFError, zlib.error):
        return []
    is_cut = path.suffix == ".gz" and len(content) == most_bytes
    lines = content.removeprefix(_BOM).split(b"\n")[bool(skipped) : -1 if is_cut else None]
    return [each for each in lines if each and not each.isspace()]


def unread(path: Path, source: str, root: Path, shown: Callable[[str], str], reason: str) -> DamagedRecord:
    """A file of which nothing was read, since `reason`; the others as for `read_records`."""
    record = RawRecord(source, _position(_name(path, root, shown), 1), b"")
    return DamagedRecord(record, DeadLetterReason.CORRUPT_SOURCE, reason, file=str(path))


class _Damage(Exception):  # noqa: N818 - never leaves this module
    def __init__(self, reason: str, partial: bytes, may_pass: bool = False) -> None:
        self.reason = reason
        self.partial = partial
        self.may_pass = may_pass
        super().__init__(reason)


def _open(path: Path, root: Path, follow_links: bool, closed: Sequence[Path]) -> BufferedIOBase:
    # Not blocking: else a pipe that nobody writes to would hold the flow.
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | (0 if follow_links else os.O_NOFOLLOW)
    try:
        descriptor = os.open(path, flags)
    except OSError as error:
        if error.errno == errno.ELOOP and not follow_links:
            raise _Damage(_LINK, b"") from None
        stays = isinstance(error, FileNotFoundError | PermissionError | IsADirectoryError)
        raise _Damage(_refusal(error), b"", may_pass=not stays) from None
    try:
        _require_own(os.fstat(descriptor), Path(os.path.realpath(path)), root, follow_links, closed)
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


_LINK = "it is a link, or lies behind one, and follow_links of its source is off"


def _require_own(
    opened: os.stat_result, place: Path, root: Path, follow_links: bool, closed: Sequence[Path]
) -> None:
    """Raises _Damage for what is open if it is no file of the source. `place` is where it lies without links."""
    try:
        found = place.stat()
    except OSError:
        found = None
    if found is None or not os.path.samestat(opened, found):
        raise _Damage("it was replaced while it was opened", b"", may_pass=True)
    if not stat.S_ISREG(opened.st_mode):
        raise _Damage("it is no regular file", b"")
    if not follow_links and not place.is_relative_to(os.path.realpath(root)):
        raise _Damage(_LINK, b"")
    if any(place.is_relative_to(os.path.realpath(each)) for each in closed):
        raise _Damage("it lies in idgraph's own folder", b"")


def _unpacked(path: Path, file: BufferedIOBase) -> BufferedIOBase:
    return gzip.GzipFile(fileobj=file) if path.suffix == ".gz" else file


def _refusal(error: OSError) -> str:
    # Without the path, which the whole message has.
    return error.strerror or type(error).__name__


def size_of(file: Path) -> int:
    """A file's bytes on disk; none of one that has vanished or cannot be asked."""
    try:
        return file.stat().st_size
    except OSError:
        return 0


def _name(path: Path, root: Path | None, shown: Callable[[str], str]) -> str:
    folder = root or path.parent
    name = f"{folder.name}/{shown(str(path.relative_to(folder)))}"
    if len(name) <= MAX_NAME:
        return name
    return f"{hashlib.sha256(name.encode()).hexdigest()[:16]}...{name[-MAX_NAME + 19 :]}"


def _position(name: str, line: int) -> str:
    return f"file:{name}#{line}"


def _blocks(stream: BufferedIOBase, max_bytes: int) -> Iterator[tuple[list[bytes], int]]:
    """Lines without their ends, some at once, and the true length of the first of them. An over-long line has only
    its first bytes, and is the first of its block."""
    held = b""  # the line that has begun, at most max_bytes of it
    length = 0  # how long it is so far
    while True:
        try:
            chunk = stream.read1(min(CHUNK, max_bytes))
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            # read1 raises only when nothing more could be decompressed, so `held` is all there is.
            raise _Damage(_DAMAGES[type(error)], held) from None
        except OSError as error:
            raise _Damage(_refusal(error), held, may_pass=True) from None
        if not chunk:
            break
        lines = chunk.split(b"\n")
        length += len(lines[0])
        lines[0] = held + lines[0][: max(0, max_bytes - len(held))]
        held = lines.pop()
        if lines:
            yield lines, length
            length = len(held)
    if length:
        yield [held], length


# The constructor of a NamedTuple, without its call: there is one for each line.
_new: Callable[[type[RawRecord], tuple[str, str, bytes]], RawRecord] = tuple.__new__


# Hyphens stand within numbers as well as between words, so both readings count.
_BETWEEN_WORDS = (re.compile(r"[_=,; ]+"), re.compile(r"[-_=,; ]+"))


class FileNames:
    """Names of files below their source's directory, as positions may show them."""

    def __init__(self, blind_index: BlindIndex) -> None:
        self._blind_index = blind_index

    def shown(self, name: str, source: FileSource | None) -> str:
        """The name, or `~` and 22 characters that only a holder of the keyring can test a guess against.
        The same name always gives the same. Without a source nobody says that names may be seen."""
        if source is None or source.hash_file_names or looks_sensitive(name):
            return self._blind_index.file_name(name)
        return name


def looks_sensitive(name: str) -> bool:
    """Whether a file's name, a folder's on the way to it, or a word of either looks like personal data."""
    parts = PurePath(name).parts
    stems = [part.removesuffix(".gz").removesuffix(".jsonl").removesuffix(".json") for part in parts]
    words = (word for stem in stems for between in _BETWEEN_WORDS for word in between.split(stem))
    return any(shaped_key(text) for text in (*stems, *words))


class FileRecords:
    """Reads the files whose paths the rows hold, and counts them. `is_last`: these rows are not retried. Nothing below
    `closed` is read, unless the source itself lies there."""

    def __init__(
        self,
        sources: Mapping[str, FileSource],
        max_event_bytes: int,
        names: FileNames,
        rows: Iterable[SparkRow],
        is_last: bool,
        closed: Iterable[Path] = (),
    ) -> None:
        self._sources = sources
        self._max_event_bytes = max_event_bytes
        self._names = names
        self._rows = rows
        self._is_last = is_last
        self._closed = tuple(closed)
        self._files = self._bytes = 0

    def records(self) -> Iterator[RawRecord | DamagedRecord]:
        """The records of all files, in order. Raises SourceUnavailableError, before the last attempt, for a file that
        its disk or share did not give."""
        for (uri,) in self._rows:
            path = Path(uri.removeprefix("file:").replace("///", "/", 1))
            name = source_of(path, self._sources)
            if name is None:
                # It is in the checkpoint: to stop would be to stop at each start, whatever the configuration says then.
                yield self._of_no_source(path)
                continue
            config = self._sources[name]
            shown = functools.partial(self._names.shown, source=config)
            folder = folder_of(config)
            closed = [each for each in self._closed if path_below(each, folder) is None]
            yield from read_records(
                *(path, config.name, self._max_event_bytes, folder, shown, self._is_last),
                *(config.follow_links, closed),
            )
            self._files += 1
            self._bytes += size_of(path)

    def _of_no_source(self, path: Path) -> DamagedRecord:
        around = [each for each in self._sources.values() if path.is_relative_to(folder_of(each))]
        config = max(around, key=lambda each: len(folder_of(each).parts), default=None)
        return unread(
            path,
            config.name if config else "",
            folder_of(config) if config else Path(path.anchor),
            functools.partial(self._names.shown, source=config),
            "no source holds this file: a glob takes files, not those of directories that it matches; give the file "
            "again where a source takes it",
        )

    def taken(self) -> BatchCounts:
        """Files that were read to their end since this was last asked."""
        counted = BatchCounts(files=self._files, file_bytes=self._bytes)
        self._files = self._bytes = 0
        return counted
