"""The export: all profiles, or a segment, as lines or as Parquet files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from pydantic import Field, model_validator

from idgraph.files import part_of, sync_folder
from idgraph.jobs.job import Job, Plan, Run
from idgraph.jobs.kind import JobContext, without
from idgraph.model import canonical
from idgraph.model.documents import StrictDocument
from idgraph.model.errors import ConfigError, ProfileIndexError, QueryError, StoreError
from idgraph.model.jobs import START, JobKind, JobRecord, JobType, Point, Progress, download_of
from idgraph.model.queries import Query
from idgraph.model.query_language import attribute_hint
from idgraph.model.text import escape_control_chars
from profile_service.visibility import restrictions

if TYPE_CHECKING:
    from idgraph.model.index import ProfileIndex
    from profile_service.reader import Profile, ProfileReader
    from profile_service.tables import Columns

T = TypeVar("T")
PAGE = 1000
"""Profiles after which progress is counted."""
FOLDER = "exports"
"""Within the directory, of Parquet files until they are whole."""


class ExportParameters(StrictDocument):
    """Profiles as a file to download, with the attributes that the caller may see; protected values are
    masked."""

    form: Literal["jsonl", "parquet"] = "jsonl"
    segment: str | None = Field(default=None, max_length=100)
    columns: list[str] | None = Field(
        default=None,
        max_length=10_000,
        description="Parquet: these attributes and no other value; null for all.",
    )
    key: str | None = Field(
        default=None, max_length=200, description="Parquet: a column with the identifier of this type."
    )

    @model_validator(mode="after")
    def _is_table(self) -> Self:
        if self.form != "parquet" and (self.columns is not None or self.key is not None):
            raise ValueError("columns and key are of the form parquet")
        return self


class Export(Job):
    """Profiles as lines or as a table. It cannot resume: a file is written whole or not at all."""

    kind = JobKind.EXPORT

    def __init__(
        self, profiles: int, output: Path | str | None, options: Mapping[str, Any], unit: str = "profile"
    ) -> None:
        """`output` is a file, the name of something else, or standard output."""
        stated = f"standard output of {os.getpid()}" if output is None else output
        self.target = stated if isinstance(stated, str) else str(stated.absolute())
        self.what = {"output": self.target, **options}
        self._profiles = profiles
        self._unit = unit

    def plan(self, _point: Point) -> Plan:
        return Plan("the export", self._profiles, self._unit)

    @staticmethod
    def counted(run: Run, lines: Iterable[T]) -> Iterator[T]:
        """The lines or profiles, counted page by page. Raises JobStoppedError when the job must end."""
        for line in lines:
            yield line
            run.progress.done += 1
            if run.progress.done % PAGE == 0:
                run.page({})
        # Others write meanwhile.
        run.progress.total = run.progress.done


class DownloadedExport(Export):
    """An export that is kept until it expires, for its requester alone. It replaces their earlier one."""

    def __init__(self, parameters: ExportParameters, context: JobContext) -> None:
        """Raises QueryError."""
        reader, index = context.reader.as_of(), context.resources().index
        segment, self._table = parameters.segment, None
        total, self._profiles_found = expected(index), reader.scan()
        if segment is not None:
            total = reader.count_members(reader.segments()[segment])
            self._profiles_found = members(reader, segment, reveal=False)
        options: dict[str, Any] = {
            "format": parameters.form,
            "segment": segment,
            "clearance": context.clearance,
        }
        if parameters.form == "parquet":
            self._table = columns_of(reader, parameters.columns, parameters.key)
            options |= {"columns": parameters.columns, "key": parameters.key}
        super().__init__(total, download_of(context.origin.who), options)
        self._context = context
        self._reader = reader

    def work(self, run: Run) -> None:
        context, downloads, store = self._context, self._context.downloads, self._context.resources().store
        for earlier in context.runner.log.scan(JobKind.EXPORT):
            if earlier.target == self.target:
                downloads.remove(earlier.id)
        erased = store.all_tombstones()
        rules = restrictions(context.pinned.snapshot)
        with downloads.writing(run.id, None, context.download_hours, rules) as put:
            for content in self._contents(run):
                put(content)
        run.progress.counts["damaged"] = len(self._reader.damaged)
        if store.all_tombstones() != erased:
            downloads.remove(run.id)
            raise StoreError("a person was erased meanwhile; start the export again")

    def _contents(self, run: Run) -> Iterator[bytes]:
        shown = self.counted(run, self._profiles_found)
        if self._table is None:
            yield from (line_of(profile, provenance=False) for profile in shown)
            return
        folder = self._context.directory / FOLDER / run.id
        folder.parent.mkdir(mode=0o700, exist_ok=True)
        try:
            write_parquet_folder(folder, shown, self._table)
            count_other(run.progress, self._table)
            # Without partitions there is one.
            (file,) = folder.iterdir()
            with file.open("rb") as stream:
                while content := stream.read(1 << 20):
                    yield content
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def expected(index: ProfileIndex) -> int:
    """The number of profiles that an export of all will have, as far as the index knows. It is 0 while the
    index is away: an export does without."""
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
    """Let a job report the number of values that its columns could not hold, by attribute."""
    if columns.other:
        progress.counts["values_in_rest"] += columns.other.total()
        progress.count("values_in_rest", columns.other)


def line_of(profile: Profile, provenance: bool) -> bytes:
    """A line of an export."""
    return canonical.encode(profile.canonical(provenance)) + b"\n"


def _shown(record: JobRecord) -> Mapping[str, Any]:
    return without(["output"] if record.target == download_of(record.origin.who) else [])(record)


def _resumed(record: JobRecord, who: str) -> Mapping[str, Any] | None:
    if record.target != download_of(who):
        return None
    what = record.what
    return {
        "form": what["format"],
        "segment": what["segment"],
        "columns": what.get("columns"),
        "key": what.get("key"),
    }


EXPORT = JobType(
    "writes profiles to a file",
    "idgraph export",
    ExportParameters,
    DownloadedExport,
    request=START,
    shown=_shown,
    resumed=_resumed,
)
