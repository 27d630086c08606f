"""Where the topics of a Kafka cluster end by now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from idgraph.model.errors import ConfigError

SECONDS = 10.0
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
    try:
        consumer = Consumer(settings)
    except KafkaException as error:
        raise ConfigError(f"[kafka] producer: librdkafka refuses it ({error.args[0].name()})") from None
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
            marks = consumer.get_watermark_offsets(TopicPartition(*each), SECONDS)
        except KafkaException as error:
            is_away = error.args[0].code() in _AWAY
        else:
            is_away = marks is None
            found[each] = int(marks[1]) if marks else None
    return found
