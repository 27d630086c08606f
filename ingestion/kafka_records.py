"""The records of a task's ranges of Kafka offsets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from ingestion.files import DamagedRecord
from ingestion.kafka_configuration import KafkaSource
from ingestion.kafka_frames import frame
from ingestion.record_reader import Taken
from model.dead_letters import DeadLetterReason
from model.errors import ConfigError
from model.events import KAFKA, RawRecord

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""Of the batches, in this order; the timestamp is in epoch milliseconds."""


class KafkaRecords:
    """Reads the records that the batches hold. Their position is `kafka:TOPIC/PARTITION/OFFSET`."""

    def __init__(
        self,
        sources: Mapping[str, KafkaSource],
        max_event_bytes: int,
        batches: Iterable[pa.RecordBatch],
    ) -> None:
        self._sources = sources
        self._max_event_bytes = max_event_bytes
        self._batches = batches
        self._by_topic: dict[str, str] = {}

    def records(self) -> Iterator[RawRecord | DamagedRecord]:
        """The records of all ranges, in the order of each partition."""
        for batch in self._batches:
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                yield self._record(*row)

    def taken(self) -> Taken:
        """There are no files."""
        return Taken()

    def _record(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[dict[str, Any]] | None,
    ) -> RawRecord | DamagedRecord:
        source = self._by_topic.get(topic)
        if source is None:
            source = self._by_topic[topic] = source_of_topic(topic, self._sources)
        position = f"{KAFKA}{topic}/{partition}/{offset}"
        carried = [(each["key"], each["value"]) for each in headers] if headers else []
        size = len(key or b"") + sum(len(name) + len(content or b"") for name, content in carried)
        if size + len(value or b"") <= self._max_event_bytes:
            return RawRecord(source, position, frame(key, carried, timestamp, value))
        # Key and headers too: they may be what is too large.
        kept = (value or b"")[: self._max_event_bytes]
        detail = (
            f"the record has {size + len(value or b'')} bytes, more than {self._max_event_bytes}; the first "
            f"{len(kept)} of its payload are kept here"
        )
        record = RawRecord(source, position, frame(None, [], timestamp, kept))
        return DamagedRecord(record, DeadLetterReason.TOO_LARGE, detail)


def source_of_topic(topic: str, sources: Mapping[str, KafkaSource]) -> str:
    """The source that a topic belongs to: the one that names it, else the first whose pattern it matches.

    Raises ConfigError when it belongs to none.
    """
    for name, source in sources.items():
        if topic in source.topics:
            return name
    for name, source in sources.items():
        if source.topic_pattern and re.fullmatch(source.topic_pattern, topic):
            return name
    raise ConfigError(f"no source has the topic {topic}")
