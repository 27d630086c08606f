"""What a flow's query reads: Spark says what is new, and remembers in the checkpoint what was taken."""

from __future__ import annotations

from typing import Protocol

from pyspark.sql import DataFrame, SparkSession

from ingestion.intake import Intake


class InputStream(Protocol):
    """The sources of one flow as one streaming DataFrame, whose rows a `RecordReader` reads in the workers."""

    def load(self, session: SparkSession, intake: Intake) -> DataFrame:
        """Begin to follow the sources."""
        ...

    def in_tasks(self, batch: DataFrame, number: int) -> DataFrame:
        """The rows of micro-batch `number`, in one task if they are few: that needs no shuffle."""
        ...

    def without_secrets(self, text: str) -> str:
        """What Spark said, without what this stream told it in confidence."""
        ...
