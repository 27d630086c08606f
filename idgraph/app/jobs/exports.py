"""What an export writes: lines, or Parquet files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from idgraph.app.terminal import escape_control_chars
from idgraph.files import part_of, sync_folder
from idgraph.model import canonical
from idgraph.model.errors import ConfigError, ProfileIndexError, QueryError
from idgraph.model.queries import Query

if TYPE_CHECKING:
    from idgraph.model.index import ProfileIndex
    from profile_service.reader import Profile, ProfileReader


def expected(index: ProfileIndex) -> int:
    """How many profiles an export of all will have, as far as the index knows; 0 while it is away: an export does without."""
    try:
        return index.count(Query())
    except ProfileIndexError:
        return 0


def members(reader: ProfileReader, name: str, reveal: bool) -> Iterator[Profile]:
    """The profiles of a segment, of those who gave the consent that it needs. Raises QueryError."""
    segment = reader.segments().get(name)
    if segment is None:
        raise QueryError(f"no segment is called {escape_control_chars(name)}")
    cursor = None
    while True:
        page = reader.members(segment, 1000, cursor, reveal)
        yield from page.profiles
        cursor = page.cursor
        if cursor is None:
            return


def write_parquet_folder(
    folder: Path,
    profiles: Iterator[Profile],
    reader: ProfileReader,
    columns: str | None,
    partition: str | None,
) -> None:
    """A new folder, there only when it is whole. Raises ConfigError, QueryError."""
    from profile_service.tables import write_parquet

    types = reader.types()
    wanted = list(types) if columns is None else [each for each in columns.split(",") if each]
    for path in (*wanted, *([partition] if partition else ())):
        if path not in types:
            raise QueryError(f"no attribute is called {escape_control_chars(path)}")
    if partition is not None:
        reader.require_open(partition, "the name of a folder")
        wanted.append(partition)
    part = part_of(folder)
    try:
        write_parquet(part, profiles, {path: types[path] for path in wanted}, partition)
        part.rename(folder)
        sync_folder(folder.parent)
    except FileExistsError:
        raise ConfigError(f"{part}: another export writes it, or was killed; then remove it") from None
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def line_of(profile: Profile, provenance: bool) -> bytes:
    """A line of an export."""
    return canonical.encode(profile.canonical(provenance)) + b"\n"
