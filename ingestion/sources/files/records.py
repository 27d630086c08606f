"""The records of a task's files."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path, PurePath

from idgraph.model.counts import BatchCounts
from idgraph.model.events import RawRecord
from idgraph.model.sources import FileSource
from ingestion.sources.files.lines import DamagedRecord, read_records, size_of, unread
from ingestion.sources.files.taken import folder_of, path_below, source_of
from ingestion.sources.stream import SparkRow
from transforms.privacy.blind_index import BlindIndex
from transforms.schema.detection import shaped_key

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
