"""Topics of one Kafka cluster as a stream, through Spark's own connector."""

from __future__ import annotations

import json
import logging
import re
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from idgraph.model.errors import SourceUnavailableError
from idgraph.model.flows import HeldSources
from idgraph.model.kafka import KafkaSettings, KafkaSource
from idgraph.model.topics import Behind, TopicSource
from ingestion.sources.kafka.lag import KafkaLag
from ingestion.sources.kafka.offsets import (
    OffsetRange,
    planned,
    ranges_of,
    taken,
)
from ingestion.sources.kafka.records import COLUMNS, COMPUTED
from ingestion.sources.stream import Intake
from ingestion.sources.topics import TopicStream

FIRST_OFFSETS = 10_000
"""Offsets per micro-batch of a flow that has not learnt yet."""

_REMEMBERED = 3
_FULL = 0.9
"""A micro-batch of so much of the bound may have had to leave some for the next: the flow is behind."""


class BatchBound:
    """The bound is what the last micro-batches' rate takes in `seconds`, between `least` and `most`. It is lowered when
    one took longer, raised when one was full, and only to half or to double and beyond, since a change costs a moment.
    Not safe for several threads."""

    def __init__(self, least: int, most: int, seconds: float) -> None:
        self._least = min(least, most)
        self._most = most
        self._seconds = seconds
        self._past: deque[tuple[int, float]] = deque(maxlen=_REMEMBERED)
        self.present = max(self._least, min(most, FIRST_OFFSETS))

    def took(self, offsets: int, seconds: float) -> None:
        """A micro-batch of so many offsets took so long."""
        if not offsets or seconds <= 0:
            return
        self._past.append((offsets, seconds))
        rate = sum(count for count, _ in self._past) / sum(taken for _, taken in self._past)
        wanted = int(max(self._least, min(self._most, rate * self._seconds)))
        is_slow = seconds > self._seconds and wanted <= self.present // 2
        is_behind = offsets >= self.present * _FULL and (wanted >= 2 * self.present or wanted == self._most)
        if is_slow or is_behind:
            self.present = wanted


log = logging.getLogger(__name__)

FEW_RECORDS = 5_000
"""Records of a micro-batch that runs as one task without a shuffle: about as many as `split_bytes` of files hold."""

BATCHES_BY_RANGES = 20
"""The number of micro-batches, after one that Spark could not read, that are read otherwise from the start."""


class KafkaStream(TopicStream):
    """The records of the topics of all sources that do not wait. `checkpoint` is that of the flow's query."""

    def __init__(
        self,
        sources: Mapping[str, KafkaSource],
        settings: KafkaSettings,
        checkpoint: Path,
        held: HeldSources,
        reads_ranges: bool = False,
    ) -> None:
        """`reads_ranges` says whether workers can read ranges of offsets themselves."""
        super().__init__(sources, checkpoint, held)
        self._settings = settings
        self._reads_ranges = reads_ranges
        self._by_ranges = 0
        self._bound = BatchBound(
            settings.min_offsets_per_batch, settings.max_offsets_per_batch, settings.batch_seconds
        )
        self._loaded_bound = self._bound.present
        self._session: SparkSession | None = None
        self._lag: KafkaLag | None = None

    def load(self, session: SparkSession, intake: Intake) -> DataFrame:
        """The columns of `KafkaRecords`."""
        # To load again would move the end that a run to the end has.
        most = self._settings.max_offsets_per_batch if intake.until_done else self._bound.present
        self._session, self._loaded_bound = session, self._bound.present
        self.edit_checkpoint()
        cores = session.sparkContext.defaultParallelism
        self._lag = self._lag or KafkaLag(session, self._consumer_options())
        reader = session.readStream.format("kafka")
        for name, value in self._options(cores, most).items():
            reader = reader.option(name, value)
        return reader.load().selectExpr(
            *(f"{COMPUTED.get(name, f'`{name}`')} AS `{name}`" for name in COLUMNS)
        )

    def in_tasks(self, batch: DataFrame, number: int) -> DataFrame:
        """As many tasks as partitions and cores, or one for `FEW_RECORDS`."""
        if self._by_ranges:
            # The program that stamped one record so has stamped others.
            self._by_ranges -= 1
            by_ranges = self._in_ranges(number)
            return batch if by_ranges is None else by_ranges
        ranges = ranges_of(self._checkpoint, number)
        return batch.coalesce(1) if ranges is not None and _are_few(ranges) else batch

    def in_other_tasks(self, number: int) -> DataFrame | None:
        """Ranges of offsets, which the workers read."""
        rows = self._in_ranges(number)
        if rows is not None:
            log.warning("records of micro-batch %d have timestamps out of all range; read otherwise", number)
            self._by_ranges = BATCHES_BY_RANGES
        return rows

    def _in_ranges(self, number: int) -> DataFrame | None:
        ranges = ranges_of(self._checkpoint, number)
        if not self._reads_ranges or not ranges or self._session is None:
            return None
        schema = "topic string, partition int, since bigint, until bigint"
        rows = self._session.createDataFrame([tuple(each) for each in ranges], schema).coalesce(1)
        return rows if _are_few(ranges) else rows.repartition(len(ranges))

    def took(self, number: int, records: int, seconds: float) -> dict[str, int]:
        """The number of waiting offsets, by `TOPIC/PARTITION`."""
        self._bound.took(max(records, self._offsets(number)), seconds)
        done = planned(self._checkpoint, number)
        return (done and self._lag and self._lag.behind(self.with_held(done))) or {}

    def is_full(self, number: int) -> bool:
        """By offsets, of which some hold no record."""
        return self._offsets(number) >= self._loaded_bound * _FULL

    def _offsets(self, number: int) -> int:
        # The beginning of a partition that came meanwhile is not noted: only its records count.
        return sum(
            each.records() for each in ranges_of(self._checkpoint, number) or [] if each.since is not None
        )

    def waiting(self) -> dict[str, Behind]:
        """The same of what was taken by now."""
        done, lag = taken(self._checkpoint), self._lag
        if not done or lag is None:
            return {}
        found = lag.behind(self.with_held(done))
        if found is None:
            raise SourceUnavailableError("Kafka does not say where the topics end")
        return {name: Behind(count) for name, count in found.items()}

    def is_bound_otherwise(self) -> bool:
        """Whether the rate of the last micro-batches asks for another bound than the query has."""
        return self._bound.present != self._loaded_bound

    def close(self) -> None:
        """Close the connections of what asks for the lag."""
        if self._lag is not None:
            self._lag.close()

    def without_secrets(self, text: str) -> str:
        """The text without secrets: an error about an option may quote its value."""
        # The longest first: a password may begin with the user's name.
        for secret in sorted(self._settings.secrets(), key=len, reverse=True):
            text = text.replace(secret, "...")
        return text

    def _consumer_options(self) -> dict[str, str]:
        further = {
            name.removeprefix("kafka."): value.get_secret_value()
            for name, value in self._settings.consumer.items()
        }
        return {
            # A misspelt topic is reported rather than made.
            "allow.auto.create.topics": "false",
            **further,
            "bootstrap.servers": self._settings.bootstrap_servers,
            # Records of transactions that were aborted are no events.
            "isolation.level": "read_committed",
        }

    def _options(self, cores: int, most: int) -> dict[str, str]:
        starting = self._settings.starting_offsets
        return {
            **{f"kafka.{name}": value for name, value in self._consumer_options().items()},
            **_subscription(self._sources, self.active()),
            "startingOffsets": starting if isinstance(starting, str) else json.dumps(starting),
            "maxOffsetsPerTrigger": str(most),
            "includeHeaders": "true",
            # Records that are gone before they were read stop the flow.
            "failOnDataLoss": "true",
            # A large micro-batch of one partition uses all cores.
            "minPartitions": str(cores),
        }


def _are_few(ranges: Sequence[OffsetRange]) -> bool:
    return sum(each.records() for each in ranges) <= FEW_RECORDS


def _subscription(sources: Mapping[str, TopicSource], active: Collection[str]) -> dict[str, str]:
    """One subscription for the topics of all active sources, and for no topic of another (`source_of_topic`)."""
    followed = [source for name, source in sources.items() if name in active]
    if all(source.topics for source in followed):
        return {"subscribe": ",".join(topic for source in followed for topic in source.topics)}
    patterns, others = [], []
    names = {name: [re.escape(topic) for topic in source.topics] for name, source in sources.items()}
    waiting = [topic for name, topics in names.items() if name not in active for topic in topics]
    for name, source in sources.items():
        if source.topic_pattern and name not in active:
            others.append(source.topic_pattern)
        elif source.topic_pattern:
            excluded = "|".join(f"(?:{each})" for each in [*waiting, *others])
            patterns.append(
                f"(?!(?:{excluded})$)(?:{source.topic_pattern})" if excluded else source.topic_pattern
            )
    named = [topic for name in names if name in active for topic in names[name]]
    return {"subscribePattern": "|".join(f"(?:{each})" for each in [*named, *patterns])}
