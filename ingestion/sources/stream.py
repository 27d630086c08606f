"""The input of a flow's query: Spark says what is new, and remembers in the checkpoint what was taken."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from idgraph.model.counts import BatchCounts
from idgraph.model.events import RawRecord
from idgraph.model.pulsar import Bound
from idgraph.model.topics import Behind
from ingestion.sources.files.lines import DamagedRecord

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SparkRow = Sequence[Any]
"""The values of one row's columns. Binary ones are `bytes` or `bytearray`, by the way that Spark hands the row on."""


class RecordReader(Protocol):
    """Reads the records of one task, once, out of the rows that it was made with."""

    def records(self) -> Iterator[RawRecord | DamagedRecord]:
        """All records, in order, what is damaged as a value in the place of what it hides. A record's position is
        the same whenever it is read. Raises SourceUnavailableError for what may be had when it is asked for again."""
        ...

    def taken(self) -> BatchCounts:
        """Files that were read to their end since the last call, and their bytes; none where there are no files."""
        ...


class Intake(NamedTuple):
    """`batch_bytes` bounds a micro-batch by the size of its files, in place of `max_files_per_batch`; a file that is
    larger is a micro-batch of its own. `rate` is in events a second; None: as fast as it goes. `span` has the first and the last message
    of a backfill from topics."""

    until_done: bool = False
    batch_bytes: int | None = None
    rate: float | None = None
    span: tuple[Bound, Bound] | None = None


class Throttle:
    """Holds the next micro-batch back until what was taken so far is no more than `rate` events a second."""

    def __init__(self, rate: float | None, clock: Callable[[], float] = time.monotonic) -> None:
        self._rate = rate
        self._clock = clock
        self._due = clock()

    def took(self, events: int, began: float) -> None:
        """So many events were taken in a micro-batch that began at this time of the clock."""
        if self._rate:
            # From when it began, not from when it was due: what was slow is not caught up with in a burst.
            self._due = max(self._due, began) + events / self._rate

    def wait(self, stop: threading.Event) -> None:
        """Block until the next micro-batch may begin, or `stop` is set."""
        while (left := self._due - self._clock()) > 0 and not stop.wait(left):
            pass


class InputStream(Protocol):
    """The sources of one flow as one streaming DataFrame, whose rows a `RecordReader` reads in the workers."""

    def load(self, session: SparkSession, intake: Intake) -> DataFrame:
        """Begin to follow the sources, but for those that wait (`HeldSources`): these are taken out of the checkpoint
        since the micro-batch that they failed in."""
        ...

    def active(self) -> frozenset[str]:
        """The sources that it follows since it was loaded."""
        ...

    def can_leave_out(self, source: str) -> bool:
        """Whether it can follow the others without this source."""
        ...

    def offsets_before(self, number: int, source: str) -> dict[str, dict[int, int]]:
        """The offsets at which micro-batch `number` begins in a source, by topic and partition; empty for files."""
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

    def is_full(self, number: int) -> bool:
        """Whether micro-batch `number`, the last, took as much as one may: then more was there, as far as it knows."""
        ...

    def waiting(self) -> dict[str, Behind]:
        """The number of waiting records, as `took` gives it; empty until it is loaded. For any thread. Raises
        SourceUnavailableError while it cannot be determined."""
        ...

    @property
    def look_seconds(self) -> float:
        """Between two looks for input that leaves no traces, while none comes."""
        ...

    def traces(self) -> object:
        """The traces of input: others than before when something may have come. Cheap."""
        ...

    def is_bound_otherwise(self) -> bool:
        """Whether micro-batches should be larger or smaller from now on, which they are when it is loaded again."""
        ...

    def close(self) -> None:
        """Nothing more is asked of it."""
        ...

    def without_secrets(self, text: str) -> str:
        """Spark's message without the secrets that this stream gave to Spark."""
        ...
