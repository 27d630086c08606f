"""What reads the records of a task: the step from Spark's rows to the stages, of which each kind of sources has one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from idgraph.model.events import RawRecord
from ingestion.sources.files.lines import DamagedRecord

SparkRow = Sequence[Any]
"""The values of one row's columns. Binary ones are `bytes` or `bytearray`, by the way that Spark hands the row on."""


class Taken(NamedTuple):
    """Files that were read to their end, and their bytes as they lie on disk; none where there are no files."""

    files: int = 0
    bytes: int = 0


class RecordReader(Protocol):
    """Reads the records of one task, once, out of the rows that it was made with."""

    def records(self) -> Iterator[RawRecord | DamagedRecord]:
        """All records, in order, what is damaged as a value in the place of what it hides. A record's position is
        the same whenever it is read. Raises SourceUnavailableError for what may be had when it is asked for again."""
        ...

    def taken(self) -> Taken:
        """What was read since this was last asked."""
        ...
