"""Making topics of a Kafka cluster."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from idgraph.model.errors import ConfigError

SECONDS = 60.0


def make_topics(bootstrap_servers: str, topics: Iterable[str], partitions: int, replicas: int) -> list[str]:
    """Make those that are missing; gives their names. Raises ConfigError when one cannot be made."""
    client = AdminClient({"bootstrap.servers": bootstrap_servers, "log_level": 0})
    wanted = [NewTopic(topic, partitions, replicas) for topic in topics]
    made = []
    for topic, done in client.create_topics(wanted).items() if wanted else ():
        try:
            done.result(SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise ConfigError(f"the topic {topic} could not be made: {error.args[0].str()}") from None
        else:
            made.append(topic)
    return sorted(made)
