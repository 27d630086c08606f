"""Files as a stream: Spark lists directories, remembers what it took, and packs files into tasks by size.

It never opens a file (docs/adr/0006-files.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ingestion import local_disk
from ingestion.configuration import FileSource
from ingestion.intake import Intake
from ingestion.source_files import spark_path
from ingestion.taken_files import files_of

# binaryFile reads a file's content only when that column is asked for.
_FILE_SCHEMA = "path string, modificationTime timestamp, length long, content binary"


class FileStream:
    """The paths of new files of all sources. `checkpoint` is that of the flow's query."""

    def __init__(self, sources: Mapping[str, FileSource], max_files_per_batch: int, checkpoint: Path) -> None:
        self._sources = sources
        self._max_files_per_batch = max_files_per_batch
        self._checkpoint = checkpoint
        self._hide: Callable[[Iterable[Path]], None] = lambda _: None

    def load(self, session: SparkSession, intake: Intake) -> DataFrame:
        """One column, `path`."""
        self._hide = local_disk.hiding(session)
        return (
            session.readStream.format("binaryFile")
            .schema(_FILE_SCHEMA)
            .option(*self._most_at_once(intake))
            # Without this a file whose modification time is a week older than the newest is ignored.
            .option("maxFileAge", "36500d")
            # Sub-directories belong to their source, and their names are no columns.
            .option("recursiveFileLookup", "true")
            .load(spark_path(self._sources))
            .select("path")
        )

    def in_tasks(self, batch: DataFrame, number: int) -> DataFrame:  # noqa: ARG002 - the protocol's
        """As Spark packed them: up to `split_bytes` are one task."""
        return batch

    def in_other_tasks(self, number: int) -> DataFrame | None:  # noqa: ARG002 - the protocol's
        """Spark reads no record of files."""
        return None

    def took(self, number: int, records: int, seconds: float) -> dict[str, int]:  # noqa: ARG002
        """What waits is not counted."""
        # Spark would ask of each file that lies there when it was changed, to find that it has taken it.
        self._hide(files_of(self._checkpoint, number))
        return {}

    def waiting(self) -> dict[str, int]:
        """What waits is not counted."""
        return {}

    def is_bound_otherwise(self) -> bool:
        """Never: a micro-batch of files has the bounds of the configuration."""
        return False

    def close(self) -> None:
        """There is nothing to close."""

    def without_secrets(self, text: str) -> str:
        """There are none."""
        return text

    def _most_at_once(self, intake: Intake) -> tuple[str, int]:
        # Spark takes one of these, not both.
        if intake.batch_bytes is None:
            return "maxFilesPerTrigger", self._max_files_per_batch
        return "maxBytesPerTrigger", intake.batch_bytes
