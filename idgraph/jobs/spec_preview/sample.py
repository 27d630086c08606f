"""A random sample of the events of some files, the same one each time, in bounded memory."""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path

from idgraph.jobs.archive import archive_files
from idgraph.model.errors import EventError
from idgraph.model.events import Event, RawRecord
from idgraph.model.sources import FileSource, SourceConfig
from ingestion.sources.files.lines import DamagedRecord, FileNames, read_records, size_of
from ingestion.sources.files.taken import folder_of, path_below
from ingestion.sources.kafka.envelope import envelope_reader
from ingestion.sources.payload_formats import PayloadFormats

MOST_SCANNED_BYTES = 256 << 20
"""Bytes of files as they lie on disk. Beyond them, files are drawn at random."""
MOST_HELD_BYTES = 128 << 20
"""Bytes of a sample's records."""
PAGE = 5000

Matches = Callable[[str, str], bool]
"""Whether a spec maps events of this source and type."""
Decrypt = Callable[[Iterable[RawRecord | DamagedRecord]], Iterable[RawRecord | DamagedRecord]]


class EventSample:
    """The events of a spec in the files of some sources: at most `size`, each as likely as any other of the files read."""

    def __init__(self, sources: Mapping[str, FileSource], matches: Matches, size: int) -> None:
        self.sources = sources
        self._matches = matches
        self._size = size
        self._drawn: list[tuple[int, str, RawRecord]] = []
        self._bytes = 0
        self.events = 0
        """Events of the spec in the files that were read."""
        self.unreadable = 0
        """Records without a usable envelope, whose spec nobody knows."""
        self.files = self.files_read = 0

    @property
    def is_whole(self) -> bool:
        """Whether it holds every event that there is."""
        return self.files == self.files_read and self.events == len(self._drawn)

    def records(self) -> list[RawRecord]:
        """In the order of their positions' hashes."""
        return [record for *_, record in sorted(self._drawn, key=lambda each: (-each[0], each[1]))]

    def read(
        self,
        names: FileNames,
        decrypt: Decrypt,
        formats: PayloadFormats,
        max_bytes: int,
        closed: Iterable[Path],
    ) -> Iterator[None]:
        """Read the files, page by page. Raises ConfigError, DecryptionError."""
        found: list[tuple[int, Path, FileSource]] = []
        for source in self.sources.values():
            with suppress(FileNotFoundError):
                found += [(_draw(str(file)), file, source) for file in archive_files(source)]
        found.sort(key=lambda each: each[:2])
        self.files = len(found)
        readers = {name: envelope_reader(each, formats).read for name, each in self.sources.items()}
        scanned = 0
        for _, file, source in found:
            if scanned >= MOST_SCANNED_BYTES:
                break
            scanned += size_of(file)
            folder = folder_of(source)
            others = [each for each in closed if path_below(each, folder) is None]
            shown = partial(names.shown, source=source)
            records = read_records(
                *(file, source.name, max_bytes, folder, shown, True, source.follow_links, others)
            )
            for number, record in enumerate(decrypt(records), 1):
                self._offer(record, readers[source.name])
                if number % PAGE == 0:
                    yield
            self.files_read += 1
            yield

    def _offer(self, record: RawRecord | DamagedRecord, read: Callable[[RawRecord], Event]) -> None:
        if isinstance(record, DamagedRecord):
            self.unreadable += 1
            return
        try:
            event = read(record)
        except EventError:
            self.unreadable += 1
            return
        if not self._matches(event.source, event.type):
            return
        self.events += 1
        # The heap's first is the one that goes: of the highest hash.
        heapq.heappush(self._drawn, (-_draw(record.position), record.position, record))
        self._bytes += len(record.value)
        while len(self._drawn) > self._size or (self._bytes > MOST_HELD_BYTES and len(self._drawn) > 1):
            self._bytes -= len(heapq.heappop(self._drawn)[2].value)


def files_of(sources: Iterable[SourceConfig], is_meant: Callable[[str], bool]) -> dict[str, FileSource]:
    """The sources in files, of which events may have a source's name that is meant."""
    found: dict[str, FileSource] = {}
    for each in sources:
        called = each.name if each.source is None else each.source.const
        if isinstance(each, FileSource) and (called is None or is_meant(str(called))):
            found[each.name] = each
    return found


def _draw(text: str) -> int:
    """A place in an order that has nothing to do with the texts': the first n are a random sample."""
    return int.from_bytes(hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest())
