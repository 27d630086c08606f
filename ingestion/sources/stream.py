"""What a flow's query reads: Spark says what is new, and remembers in the checkpoint what was taken."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from ingestion.sources.intake import Intake


class InputStream(Protocol):
    """The sources of one flow as one streaming DataFrame, whose rows a `RecordReader` reads in the workers."""

    def load(self, session: SparkSession, intake: Intake) -> DataFrame:
        """Begin to follow the sources."""
        ...

    def in_tasks(self, batch: DataFrame, number: int) -> DataFrame:
        """The rows of micro-batch `number`, in one task if they are few: that needs no shuffle."""
        ...

    def in_other_tasks(self, number: int) -> DataFrame | None:
        """The same for a micro-batch of which Spark cannot take a record (UnreadableRecordError), or left something out
        (`is_whole`); None if there is no other way to read it."""
        ...

    def is_whole(self, number: int, files: int) -> bool:
        """Whether all of micro-batch `number` was read, of which the tasks have read so many files."""
        ...

    def took(self, number: int, records: int, seconds: float) -> dict[str, int]:
        """Micro-batch `number` is done. Gives how many records wait by now, by the parts of the input; empty where that
        is not known."""
        ...

    def waiting(self) -> dict[str, int]:
        """How many records wait by now, as `took` gives it; empty until it is loaded. For any thread. Raises
        SourceUnavailableError while it cannot be determined."""
        ...

    def is_bound_otherwise(self) -> bool:
        """Whether micro-batches should be larger or smaller from now on, which they are when it is loaded again."""
        ...

    def close(self) -> None:
        """Nothing more is asked of it."""
        ...

    def without_secrets(self, text: str) -> str:
        """What Spark said, without what this stream reported it in confidence."""
        ...
