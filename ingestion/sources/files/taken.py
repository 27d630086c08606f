"""Which files a flow's query has taken, as its checkpoint reports them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote

from idgraph.model.sources import FileSource, is_glob


def folder_of(source: FileSource) -> Path:
    """The directory below which a source's files lie."""
    return source.path.parent if is_glob(source.path) else source.path


def path_below(folder: Path, place: Path) -> Path | None:
    """Where a place lies below a folder, however both are written: with `..`, or through links. None if elsewhere."""
    folder, place = Path(os.path.realpath(folder)), Path(os.path.realpath(place))
    return place.relative_to(folder) if place.is_relative_to(folder) else None


def source_of(path: Path, sources: Mapping[str, FileSource]) -> str | None:
    """The source that a file belongs to: the one whose path is the closest, a glob before its directory.
    None when no source holds it, as what is below a directory that a glob matches."""
    summary = [
        (len(config.path.parts), is_glob(config.path), name)
        for name, config in sources.items()
        if _holds(config.path, path)
    ]
    return max(summary)[2] if summary else None


def _holds(source: Path, file: Path) -> bool:
    if is_glob(source):
        return file.parent == source.parent and fnmatchcase(file.name, source.name)
    return file.is_relative_to(source)


def spark_path(sources: Mapping[str, FileSource]) -> str:
    """One path for Spark's file source that holds the files of all sources, whose paths are absolute."""
    # The slash stands before the braces: Hadoop takes a path that begins otherwise for a relative one.
    return "/{" + ",".join(_escaped(config.path).removeprefix("/") for config in sources.values()) + "}"


def _escaped(path: Path) -> str:
    # Directories are literal: what Hadoop's globs would read into them is escaped.
    folder = "".join(f"\\{c}" if c in "{}[]*?,\\" else c for c in str(path.parent if is_glob(path) else path))
    return f"{folder}/{path.name}" if is_glob(path) else folder


TAIL_BYTES = 1 << 20
"""Every tenth file of the log reports all files that were ever taken, the latest at its end; more of it is read as needed."""


def files_of(checkpoint: Path, number: int) -> list[Path]:
    """The files that micro-batch `number` takes: none where that cannot be determined."""
    log = checkpoint / "sources" / "0"
    try:
        last = _entry(checkpoint, number)
        first = _first_entry(checkpoint, number, last)
        return [path for entry in range(first, last + 1) for path in _paths(log, entry)]
    except (OSError, ValueError, IndexError, KeyError, TypeError):
        return []


def _entry(checkpoint: Path, number: int) -> int:
    """The last entry of the log of files that a micro-batch takes."""
    offsets = json.loads((checkpoint / "offsets" / str(number)).read_bytes().splitlines()[-1])
    return int(offsets["logOffset"])


def _first_entry(checkpoint: Path, number: int, last: int) -> int:
    """A stop between the two logs leaves files that were noted for a micro-batch that was not: the next has them too."""
    try:
        return _entry(checkpoint, number - 1) + 1 if number else 0
    except FileNotFoundError:
        # Spark keeps those of the last hundred micro-batches.
        return last


def _paths(log: Path, entry: int) -> Iterator[Path]:
    for line in _last_lines(_file_of(log, entry), entry):
        entered = json.loads(line)
        if entered["batchId"] == entry:
            yield Path(unquote(entered["path"].removeprefix("file:")))


def _file_of(log: Path, entry: int) -> Path:
    """An entry's own file; where Spark has removed it, the next that lists all from the first on."""
    own = log / str(entry)
    compacted = sorted(int(each.stem) for each in log.glob("*.compact") if each.stem.isdecimal())
    return (
        next((log / f"{each}.compact" for each in compacted if each >= entry), own)
        if not own.exists()
        else own
    )


def _last_lines(file: Path, entry: int) -> list[bytes]:
    """The lines at the end of a log's file that may be of this entry, which are all that are."""
    mine = b'"batchId":%d}' % entry
    tail = TAIL_BYTES
    with file.open("rb") as stream:
        size = stream.seek(0, os.SEEK_END)
        while True:
            stream.seek(max(0, size - tail))
            # The first may be the version, or cut.
            lines = stream.read().split(b"\n")[1:]
            if tail >= size or (lines and (json.loads(lines[0])["batchId"] if lines[0] else -1) < entry):
                return [line for line in lines if line.endswith(mine)]
            tail *= 4
