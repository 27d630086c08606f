"""The records of a task's ranges of Kafka offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import msgspec

from idgraph.model.counts import BatchCounts
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import ConfigError
from idgraph.model.events import KAFKA, RawRecord
from idgraph.model.topics import TopicSource
from ingestion.sources.files.lines import DamagedRecord
from ingestion.sources.kafka.envelope import Headers, frame
from ingestion.sources.stream import SparkRow

RANGE = ("topic", "partition", "since", "until")
"""Columns of rows that are ranges of offsets, for records that Spark does not read itself."""

ReadRange = Callable[[str, int, int | None, int], Iterable[Any]]
"""Reads a range: gives offset, timestamp, key, value and headers as pairs of each of its records, of Pulsar's also the
producer's name and the schema's version."""

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
"""Columns of the rows, in this order."""

COMPUTED = {
    "timestamp": "unix_millis(timestamp)",
    # For a list Spark's Arrow writer goes through all rows of a batch again for each row that has none.
    "headers": "CASE WHEN size(headers) > 0 THEN to_json(headers) END",
}
"""Columns that are not as the connector has them: the timestamp in epoch milliseconds, the headers, if any, as JSON."""


class _Header(msgspec.Struct):
    key: str
    value: bytes | None = None


_read_headers = msgspec.json.Decoder(list[_Header]).decode


def record_position(topic: str, partition: int, offset: int | str) -> str:
    """The position of a record of Kafka."""
    return f"{KAFKA}{topic}/{partition}/{offset}"


class KafkaRecords:
    """Reads the records that the rows hold. Their position is `kafka:TOPIC/PARTITION/OFFSET`."""

    def __init__(
        self,
        sources: Mapping[str, TopicSource],
        max_event_bytes: int,
        rows: Iterable[SparkRow],
        read_range: ReadRange | None = None,
        position: Callable[[str, int, int | str], str] = record_position,
    ) -> None:
        """`position` names a record by topic, partition and offset."""
        self._sources = sources
        self._max_event_bytes = max_event_bytes
        self._rows = rows
        self._read_range = read_range
        self._position = position
        self._by_topic: dict[str, str] = {}

    def records(self) -> Iterator[RawRecord | DamagedRecord]:
        """The records of all ranges, in the order of each partition."""
        for row in self._rows:
            if len(row) == len(RANGE):
                yield from self._records_in(*row)
            else:
                topic, partition, offset, timestamp, key, value, headers = row
                carried = [(each.key, each.value) for each in _read_headers(headers)] if headers else []
                yield self._record(topic, partition, offset, timestamp, _bytes(key), _bytes(value), carried)

    def _records_in(
        self, topic: str, partition: int, since: int | None, until: int
    ) -> Iterator[RawRecord | DamagedRecord]:
        if self._read_range is None:
            raise ConfigError(
                "nothing here reads ranges of topics; install the extra of their system in the workers"
            )
        for record in self._read_range(topic, partition, since, until):
            yield self._record(topic, partition, *record)

    def taken(self) -> BatchCounts:
        """There are no files."""
        return BatchCounts()

    def _record(
        self,
        topic: str,
        partition: int,
        offset: int | str,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        carried: Headers,
        producer: str | None = None,
        schema: int | None = None,
    ) -> RawRecord | DamagedRecord:
        source = self._by_topic.get(topic)
        if source is None:
            source = self._by_topic[topic] = source_of_topic(topic, self._sources)
        position = self._position(topic, partition, offset)
        size = len(key or b"") + sum(len(name) + len(content or b"") for name, content in carried)
        named = None if schema is None else f"{topic}/{schema}"
        if size + len(value or b"") <= self._max_event_bytes:
            return RawRecord(source, position, frame(key, carried, timestamp, value, producer, named))
        # Key and headers too: they may be what is too large.
        kept = (value or b"")[: self._max_event_bytes]
        detail = (
            f"the record has {size + len(value or b'')} bytes, more than {self._max_event_bytes}; the first "
            f"{len(kept)} of its payload are kept here"
        )
        record = RawRecord(source, position, frame(None, [], timestamp, kept))
        return DamagedRecord(record, DeadLetterReason.TOO_LARGE, detail)


def _bytes(content: bytes | bytearray | None) -> bytes | None:
    return None if content is None else bytes(content)


def source_of_topic(topic: str, sources: Mapping[str, TopicSource]) -> str:
    """The source that a topic belongs to: the one that names it, else the first whose pattern it matches.

    Raises ConfigError when it belongs to none.
    """
    for name, source in sources.items():
        if topic in source.topics:
            return name
    for name, source in sources.items():
        if source.matches(topic):
            return name
    raise ConfigError(f"no source has the topic {topic}")
