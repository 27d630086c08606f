"""A backfill's archive: its files, and the approximate number of their events."""

from __future__ import annotations

import gzip
import os
import zlib
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from idgraph.model.errors import ConfigError
from idgraph.model.sources import FileSource, is_glob, require_plain_glob
from ingestion.sources.files.lines import size_of
from ingestion.sources.files.taken import folder_of, source_of

SAMPLE_EVENTS = 5000
SAMPLE_BYTES = 1 << 16
"""The most bytes of a line that are held at once; nothing has checked the lengths of lines yet."""
LIKELY_BYTES = 100.0
"""Likely bytes of an event in a compressed file, where there is none to look at."""


def archive_path(path: Path) -> Path:
    """The path as that of a source: a directory, a glob of files, or a file. Raises ConfigError."""
    path = Path(os.path.abspath(path))  # noqa: PTH100 - as Spark names what it finds: without `..`, links as they are
    if path.is_dir():
        if is_glob(path):
            raise ConfigError(f"{path}: the name of this directory is a pattern of files, too; rename it")
        return path
    if path.is_file():
        # No other character has a meaning of its own within brackets.
        places = [at for at, each in enumerate(path.name) if each not in "!^-"]
        if not places or not set(path.name).isdisjoint("{}[]*?,\\"):
            raise ConfigError(
                f"{path}: the name of this file is a pattern, too; give its directory, or rename it"
            )
        # A glob that only this name matches: a source is a directory or a glob.
        place = places[-1]
        return path.with_name(f"{path.name[:place]}[{path.name[place]}]{path.name[place + 1 :]}")
    if is_glob(path) and path.parent.is_dir():
        try:
            require_plain_glob(path)
        except ValueError as error:
            raise ConfigError(f"{path}: {error}") from None
        return path
    raise ConfigError(f"{path}: there is no such directory or file, nor files of this pattern")


def archive_files(source: FileSource) -> Iterator[Path]:
    """The files that a flow takes of a source: as Spark lists them, without empty ones and behind links too.

    Raises ConfigError for a link to a directory that it is in: Spark would take its files some forty times.
    """
    for folder, _, names in _walk(folder_of(source)):
        for name in names:
            file = folder / name
            if not _is_hidden(name) and size_of(file) and file.is_file() and _belongs(file, source):
                yield file


def _walk(top: Path) -> Iterator[tuple[Path, list[str], list[str]]]:
    for place, folders, names in os.walk(top, followlinks=True):
        folder = Path(place)
        folders[:] = [each for each in folders if not _is_hidden(each)]
        for each in folders:
            link = folder / each
            if link.is_symlink() and folder.resolve().is_relative_to(link.resolve()):
                raise ConfigError(f"{link}: links to a directory that it is in; remove the link")
        yield folder, folders, names


def _is_hidden(name: str) -> bool:
    # Spark leaves these out. It takes a name such as `_day=1` for that of a column.
    return name.startswith(".") or name.endswith("._COPYING_") or (name.startswith("_") and "=" not in name)


def _belongs(file: Path, source: FileSource) -> bool:
    return source_of(file, {source.name: source}) is not None


def bytes_an_event(file: Path) -> float:
    """The approximate number of a file's bytes, as it lies on disk, per event."""
    try:
        with file.open("rb") as stored:
            stream = gzip.GzipFile(fileobj=stored) if file.suffix == ".gz" else stored
            events, begins = 0, True
            for piece in islice(iter(lambda: stream.readline(SAMPLE_BYTES), b""), SAMPLE_EVENTS):
                events += begins and not piece.isspace()
                begins = piece.endswith(b"\n")
            # The stream reads ahead: all of a small file, and little too much of a large one.
            return stored.tell() / events if events else LIKELY_BYTES
    except (OSError, EOFError, zlib.error):
        return LIKELY_BYTES
