"""Topics of a Kafka cluster: their end offsets, and reading ranges that Spark's connector cannot take."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, Message, TopicPartition

from idgraph.model.errors import ConfigError, FlowStoppedError, SourceUnavailableError

ANSWER_SECONDS = 10.0
_AWAY = {KafkaError._TIMED_OUT, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}


def ends(
    bootstrap_servers: str, options: Mapping[str, str], partitions: Iterable[tuple[str, int]]
) -> dict[tuple[str, int], int | None]:
    """By topic and partition, the offset after the last record; None for a partition that cannot be asked for. Raises ConfigError for options that librdkafka refuses."""
    settings: dict[str, str | int | float | bool] = {
        "log_level": 0,
        **options,
        "bootstrap.servers": bootstrap_servers,
        # Asked for by the client; nothing is read or committed in its name.
        "group.id": "idgraph-lag",
        "enable.auto.commit": False,
    }
    consumer = _consumer(settings)
    try:
        return _ends(consumer, partitions)
    finally:
        consumer.close()


def _ends(consumer: Consumer, partitions: Iterable[tuple[str, int]]) -> dict[tuple[str, int], int | None]:
    found: dict[tuple[str, int], int | None] = {}
    is_away = False
    for each in partitions:
        found[each] = None
        # A cluster that is away is waited for once, not for each partition.
        if is_away:
            continue
        try:
            marks = consumer.get_watermark_offsets(TopicPartition(*each), ANSWER_SECONDS)
        except KafkaException as error:
            is_away = error.args[0].code() in _AWAY
        else:
            is_away = marks is None
            found[each] = int(marks[1]) if marks else None
    return found


def names(bootstrap_servers: str, options: Mapping[str, str]) -> set[str]:
    """The topics that there are. Raises SourceUnavailableError when the cluster is away, ConfigError as `ends`."""
    consumer = _consumer(
        {"log_level": 0, **options, "bootstrap.servers": bootstrap_servers, "group.id": "idgraph-lag"}
    )
    try:
        return set(consumer.list_topics(timeout=ANSWER_SECONDS).topics)
    except KafkaException as error:
        raise SourceUnavailableError(
            f"Kafka at {bootstrap_servers} does not answer ({error.args[0].name()})"
        ) from None
    finally:
        consumer.close()


SILENT_SECONDS = 60.0
"""The silence after which the cluster counts as away."""

_AT_ONCE = 1000
MOST_PARTITIONS = 32
_GONE = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError.UNKNOWN_TOPIC_OR_PART)


class ReadRecord(NamedTuple):
    """A record as it is; `timestamp` is whatever its producer wrote."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class KafkaRanges:
    """Reads committed records of one cluster. Nothing is opened before the first use."""

    def __init__(self, bootstrap_servers: str, options: Mapping[str, str]) -> None:
        """`options` are librdkafka's."""
        self._settings: dict[str, str | int | float | bool] = {
            "log_level": 0,
            **options,
            "bootstrap.servers": bootstrap_servers,
            # Asked for by the client; nothing is committed in its name.
            "group.id": "idgraph-ranges",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            # Records that are gone are reported, not passed over.
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
        }

    def records(self, topic: str, partition: int, since: int | None, until: int) -> Iterator[ReadRecord]:
        """The records from `since`, None the first that is there, up to before `until`, in order.

        Raises FlowStoppedError for those that are gone, SourceUnavailableError when the cluster is away, ConfigError
        for options that librdkafka refuses.
        """
        consumer = _consumer(self._settings)
        try:
            first = OFFSET_BEGINNING if since is None else since
            consumer.assign([TopicPartition(topic, partition, first)])
            yield from _until(consumer, until, f"topic {topic}, partition {partition}")
        finally:
            consumer.close()

    def newest(self, is_meant: Callable[[str], bool], most: int) -> list[tuple[str, int, ReadRecord]]:
        """The last `most` records of each partition, of at most `MOST_PARTITIONS`, with topic and partition. Raises
        SourceUnavailableError when the cluster is away, ConfigError."""
        consumer = _consumer(self._settings)
        records: list[tuple[str, int, ReadRecord]] = []
        try:
            topics = consumer.list_topics(timeout=ANSWER_SECONDS).topics
            partitions = [
                TopicPartition(name, n) for name in topics if is_meant(name) for n in topics[name].partitions
            ]
            starts = []
            for partition in partitions[:MOST_PARTITIONS]:
                low, end = consumer.get_watermark_offsets(partition, ANSWER_SECONDS) or (0, 0)
                if low < end:
                    starts.append(TopicPartition(partition.topic, partition.partition, max(low, end - most)))
            consumer.assign(starts)
            waited, deadline = len(starts), time.monotonic() + ANSWER_SECONDS
            while waited and time.monotonic() < deadline:
                for each in _arrived(consumer):
                    error = each.error()
                    waited -= error is not None and error.code() == KafkaError._PARTITION_EOF
                    if error is None:
                        records.append((each.topic(), each.partition(), _record(each)))
        except KafkaException as error:
            raise SourceUnavailableError(f"Kafka does not answer ({error.args[0].name()})") from None
        finally:
            consumer.close()
        return records


def _consumer(settings: dict[str, str | int | float | bool]) -> Consumer:
    try:
        return Consumer(settings)
    except KafkaException as error:
        raise ConfigError(f"[kafka] producer: librdkafka refuses it ({error.args[0].name()})") from None


def _until(consumer: Consumer, until: int, place: str) -> Iterator[ReadRecord]:
    deadline = time.monotonic() + SILENT_SECONDS
    while True:
        for message in _arrived(consumer):
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                _raise(error, place)
            elif message.offset() >= until:
                # The last offsets may hold no record: the end of a transaction.
                return
            elif error is None:
                yield _record(message)
                if message.offset() == until - 1:
                    return
                # After whoever asks has done with it.
                deadline = time.monotonic() + SILENT_SECONDS
            # An end before `until` is none: who became the leader just now may not know yet how far it may give.
        if time.monotonic() > deadline:
            raise SourceUnavailableError(
                f"Kafka, {place}: nothing came for {SILENT_SECONDS:.0f} s, though it had records up to offset {until}"
            )


def _arrived(consumer: Consumer) -> list[Message]:
    """The records that are there, or come within a second. To ask for as many at once would wait that second for those that never
    come, behind the last."""
    first = consumer.poll(1.0)
    return [] if first is None else [first, *consumer.consume(_AT_ONCE, 0)]


def _raise(error: KafkaError, place: str) -> None:
    if error.code() in _GONE:
        raise FlowStoppedError(
            f"records in Kafka are gone that were not read yet (docs/kafka.md): {place}: {error.name()}"
        )
    if error.fatal() or not error.retriable():
        raise SourceUnavailableError(f"Kafka, {place}: {error.name()}")


def _record(message: Message) -> ReadRecord:
    _, timestamp = message.timestamp()
    return ReadRecord(message.offset(), timestamp, message.key(), message.value(), message.headers() or [])
