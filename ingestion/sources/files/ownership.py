"""Which files belong to which source."""

from __future__ import annotations

import os
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from ingestion.sources.configuration import FileSource, SourceConfig
from ingestion.sources.files.globs import is_glob


def file_sources(sources: Mapping[str, SourceConfig]) -> dict[str, FileSource]:
    """Those of the sources that publish files."""
    return {name: each for name, each in sources.items() if isinstance(each, FileSource)}


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
