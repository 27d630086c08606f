"""What an export writes: lines, or Parquet files."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from idgraph.files import part_of, sync_folder
from idgraph.model import canonical
from idgraph.model.errors import ConfigError, ProfileIndexError, QueryError
from idgraph.model.queries import Query
from idgraph.model.query_language import attribute_hint
from idgraph.model.text import escape_control_chars

if TYPE_CHECKING:
    from idgraph.model.index import ProfileIndex
    from idgraph.model.jobs import Progress
    from profile_service.reader import Profile, ProfileReader
    from profile_service.tables import Columns


def expected(index: ProfileIndex) -> int:
    """How many profiles an export of all will have, as far as the index knows; 0 while it is away: an export does without."""
    try:
        return index.count(Query())
    except ProfileIndexError:
        return 0


def members(reader: ProfileReader, name: str, reveal: bool) -> Iterator[Profile]:
    """The profiles of a segment, of those who gave the consent that it needs: by the store, since the index may lag behind a
    withdrawal. Raises QueryError."""
    from profile_service.consents import ROOT, consent_of

    segment = reader.segments().get(name)
    if segment is None:
        raise QueryError(f"no segment is called {escape_control_chars(name)}")
    purpose, cursor = segment.purpose, None
    whole = reader if purpose is None else reader.reading_always(ROOT)
    while True:
        page = whole.members(segment, 1000, cursor, reveal)
        for profile in page.profiles:
            if purpose is None or ((consent := consent_of(profile, purpose)) and consent.is_given):
                yield whole.visible(profile)
        cursor = page.cursor
        if cursor is None:
            return


def columns_of(
    reader: ProfileReader,
    names: Sequence[str] | None = None,
    key: str | None = None,
    partition: str | None = None,
) -> Columns:
    """The columns of an export: the attributes that are named, or all known ones. Raises QueryError."""
    from profile_service.tables import Columns

    more = () if partition is None else (partition,)
    columns = Columns(reader, None if names is None else (*names, *more), key)
    if partition is not None:
        if partition not in columns.types:
            raise QueryError(
                f"no attribute is called {partition}; {attribute_hint(partition, columns.types)}"
            )
        reader.require_open(partition, "the name of a folder")
    return columns


def write_parquet_folder(
    folder: Path, profiles: Iterator[Profile], columns: Columns, partition: str | None = None
) -> None:
    """A new folder, there only when it is whole. Raises ConfigError."""
    from profile_service.tables import write_parquet

    part = part_of(folder)
    try:
        write_parquet(part, profiles, columns, partition)
        part.rename(folder)
        sync_folder(folder.parent)
    except FileExistsError:
        raise ConfigError(f"{part}: another export writes it, or was killed; then remove it") from None
    except BaseException:
        shutil.rmtree(part, ignore_errors=True)
        raise


def count_other(progress: Progress, columns: Columns) -> None:
    """Let a job say how many values its columns could not hold, of which attributes."""
    if columns.other:
        progress.counts["values_in_rest"] += columns.other.total()
        progress.count("values_in_rest", columns.other)


def line_of(profile: Profile, provenance: bool) -> bytes:
    """A line of an export."""
    return canonical.encode(profile.canonical(provenance)) + b"\n"
