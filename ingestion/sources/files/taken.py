"""The files that a flow's query has taken, as its checkpoint reports them."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from urllib.parse import unquote

from idgraph.files import write_atomically
from idgraph.model.sources import FileSource, is_glob


def folder_of(source: FileSource) -> Path:
    """The directory below which a source's files lie."""
    return source.path.parent if is_glob(source.path) else source.path


def directories_below(folder: Path) -> Iterator[Path]:
    """The directories that Spark lists for a source's folder, itself included, without those that are linked below it."""
    for path, names, _ in os.walk(folder):
        names[:] = [each for each in names if not each.startswith((".", "_"))]
        yield Path(path)


def path_below(folder: Path, place: Path) -> Path | None:
    """The path of a place below a folder, however both are written: with `..`, or through links. None if elsewhere."""
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
            yield _path(entered)


def _path(entered: Mapping[str, str]) -> Path:
    return Path(unquote(entered["path"].removeprefix("file:")))


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


def leave_out(checkpoint: Path, number: int, is_left_out: Callable[[Path], bool]) -> None:
    """Take files out of micro-batch `number` and later ones, so that Spark finds them again when it looks at their folder.
    For a checkpoint that no query runs on. Raises OSError."""
    log = checkpoint / "sources" / "0"
    try:
        first = _first_entry(checkpoint, number, _entry(checkpoint, number))
    except FileNotFoundError:
        # Spark has removed the micro-batch's plan: of one so long ago they were taken out then.
        return
    for file in list(log.iterdir()):
        if file.name.removesuffix(".compact").isdecimal() and int(file.stem) >= first:
            lines = file.read_bytes().split(b"\n")
            kept = [each for each in lines if not _is_of(each, first, is_left_out)]
            if len(kept) < len(lines):
                rewrite(file, b"\n".join(kept))


def rewrite(file: Path, content: bytes) -> None:
    """Change a file of a checkpoint. Without its checksums, Hadoop reads it as it is. Raises OSError."""
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    write_atomically(file, content)


def _is_of(line: bytes, first: int, is_left_out: Callable[[Path], bool]) -> bool:
    if not line.startswith(b"{"):
        return False
    entered = json.loads(line)
    return entered["batchId"] >= first and is_left_out(_path(entered))
