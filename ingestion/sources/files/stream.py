"""Files as a stream: Spark lists directories, remembers what it took, and packs files into tasks by size.

It never opens a file (docs/adr/0006-files.md).
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from idgraph.model.errors import StoreError
from idgraph.model.flows import HeldSources
from idgraph.model.sources import FileSource, is_glob
from idgraph.model.topics import Behind
from ingestion.sources.files.lines import size_of
from ingestion.sources.files.taken import (
    directories_below,
    files_of,
    folder_of,
    leave_out,
    source_of,
    spark_path,
)
from ingestion.sources.stream import Intake
from ingestion.spark import local_disk
from ingestion.spark.checkpoints import query_id

log = logging.getLogger(__name__)

# binaryFile reads a file's content only when that column is asked for.
_FILE_SCHEMA = "path string, modificationTime timestamp, length long, content binary"


class FileStream:
    """The paths of new files of all sources that do not wait. `checkpoint` is that of the flow's query."""

    look_seconds = 1.0

    def __init__(
        self, sources: Mapping[str, FileSource], max_files_per_batch: int, checkpoint: Path, held: HeldSources
    ) -> None:
        self._sources = sources
        self._held = held
        self._max_files_per_batch = max_files_per_batch
        self._checkpoint = checkpoint
        self._session: SparkSession | None = None
        self._noted: tuple[int, list[Path]] = (-1, [])
        self._hide: Callable[[Iterable[Path]], None] = lambda _: None
        self._traces: Mapping[Path, int] = {}

    def load(self, session: SparkSession, intake: Intake) -> DataFrame:
        """One column, `path`."""
        self._hide = local_disk.hiding(session)
        self._session, self._noted, self._traces = session, (-1, []), {}
        self._held.load(self._sources)
        query = query_id(self._checkpoint)
        for name, hold in (self._held.waiting | self._held.tried_again).items():
            if hold.is_of(query):
                self._leave_out(name, hold.batch)
        self._held.let_go(self._sources)
        active = self.active()
        return (
            session.readStream.format("binaryFile")
            .schema(_FILE_SCHEMA)
            .option(*self._most_at_once(intake))
            # Without this a file whose modification time is a week older than the newest is ignored.
            .option("maxFileAge", "36500d")
            # Sub-directories belong to their source, and their names are no columns.
            .option("recursiveFileLookup", "true")
            # A file that is gone when a task looks at it is not in its rows, as one that was gone when the
            # micro-batch was planned; the flow looks for both (`is_whole`).
            .option("ignoreMissingFiles", "true")
            .load(spark_path({name: each for name, each in self._sources.items() if name in active}))
            .select("path")
        )

    def active(self) -> frozenset[str]:
        """All but those that wait."""
        return frozenset(self._sources.keys() - self._held.waiting.keys())

    def can_leave_out(self, source: str) -> bool:
        """Unless its files lie where Spark finds them for another source."""
        mine = self._sources[source].path
        return not any(_may_share(each.path, mine) for name, each in self._sources.items() if name != source)

    def offsets_before(self, number: int, source: str) -> dict[str, dict[int, int]]:  # noqa: ARG002
        """There are none."""
        return {}

    def _leave_out(self, source: str, number: int) -> None:
        try:
            leave_out(self._checkpoint, number, lambda file: source_of(file, self._sources) == source)
        except OSError as error:
            raise StoreError(f"{error.filename or self._checkpoint}: {error.strerror}") from None

    def in_tasks(self, batch: DataFrame, number: int) -> DataFrame:  # noqa: ARG002 - the protocol's
        """As Spark packed them: up to `split_bytes` are one task."""
        return batch

    def is_whole(self, number: int, files: int) -> bool:
        """Spark leaves out of a micro-batch, without a word, the files that are away when it plans or runs it: one that was
        begun before the last start, on a share that is not mounted now. It never looks at them again."""
        noted = self._files_of(number)
        if files >= len(noted):
            return True
        # Empty files are not counted either, and those of no source are dead letters and not counted.
        due = [file for file in noted if source_of(file, self._sources) is not None]
        return files >= len(due) or files >= len(due) - sum(map(_is_empty, due))

    def in_other_tasks(self, number: int) -> DataFrame | None:
        """All files that the checkpoint names, whether they are there or not, which the workers find out."""
        noted = self._files_of(number)
        if self._session is None or not noted:
            return None
        log.warning("some files of micro-batch %d were away; all of them are looked for again", number)
        return self._session.createDataFrame([(f"file:{file}",) for file in noted], "path string")

    def took(self, number: int, records: int, seconds: float) -> dict[str, int]:  # noqa: ARG002
        """Empty: waiting files are not counted."""
        # Spark would ask of each file that lies there when it was changed, to find that it has taken it.
        self._hide(self._files_of(number))
        return {}

    def is_full(self, number: int) -> bool:
        """Spark takes the oldest files first, up to the bound."""
        return len(self._files_of(number)) >= self._max_files_per_batch

    def waiting(self) -> dict[str, Behind]:
        """Empty: waiting files are not counted."""
        return {}

    def traces(self) -> Mapping[Path, int]:
        """When something was last made, renamed or removed in the sources' directories."""
        if not self._traces or any(_modified(folder) != at for folder, at in self._traces.items()):
            folders = {folder_of(self._sources[name]) for name in self.active()}
            found = {each for folder in folders for each in directories_below(folder)}
            self._traces = {each: _modified(each) for each in found}
        return self._traces

    def is_bound_otherwise(self) -> bool:
        """Never: a micro-batch of files has the bounds of the configuration."""
        return False

    def close(self) -> None:
        """There is nothing to close."""

    def without_secrets(self, text: str) -> str:
        """There are none."""
        return text

    def _files_of(self, number: int) -> list[Path]:
        if self._noted[0] != number:
            self._noted = number, files_of(self._checkpoint, number)
        return self._noted[1]

    def _most_at_once(self, intake: Intake) -> tuple[str, int]:
        # Spark takes one of these, not both.
        if intake.batch_bytes is None:
            return "maxFilesPerTrigger", self._max_files_per_batch
        return "maxBytesPerTrigger", intake.batch_bytes


def _may_share(source: Path, other: Path) -> bool:
    """Whether Spark may find files of the other for this source."""
    if not is_glob(source):
        return (other.parent if is_glob(other) else other).is_relative_to(source)
    if not is_glob(other) or source.parent != other.parent:
        return False
    first, second = (re.split(r"[*?\[]", each.name)[0] for each in (source, other))
    return first.startswith(second) or second.startswith(first)


def _modified(folder: Path) -> int:
    """In nanoseconds; 0 for one that is gone."""
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0


def _is_empty(file: Path) -> bool:
    return not size_of(file) and file.exists()
