"""Where the topics of a Kafka cluster end by now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaException, TopicPartition

from model.errors import ConfigError

SECONDS = 10.0


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
        return {each: _ends(consumer, *each) for each in partitions}
    finally:
        consumer.close()


def _ends(consumer: Consumer, topic: str, partition: int) -> int | None:
    try:
        found = consumer.get_watermark_offsets(TopicPartition(topic, partition), SECONDS)
    except KafkaException:
        return None
    return int(found[1]) if found else None
