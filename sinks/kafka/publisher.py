"""Writing events to Kafka, with librdkafka."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from idgraph.model.errors import ConfigError, PublishError

DELIVERY_SECONDS = 60.0
"""The time for which a record is sent again, after which it counts as not published."""
ANSWER_SECONDS = 15.0
"""The wait for the cluster's first answer."""
Record = tuple[bytes | None, bytes] | tuple[bytes | None, bytes, dict[str, str]]
"""Key, payload, and headers if it has any."""


class KafkaPublisher:
    """Publishes records to topics of one cluster. A context manager; not safe for several threads.

    Records that are sent again after a lost answer are written once (an idempotent producer). Raises ConfigError for
    options that librdkafka refuses.
    """

    def __init__(self, bootstrap_servers: str, options: Mapping[str, str]) -> None:
        settings: dict[str, str | int | float | bool] = {
            # Not its own lines on standard error: what went wrong is raised.
            "log_level": 0,
            "linger.ms": 20,
            "compression.type": "lz4",
            "delivery.timeout.ms": round(DELIVERY_SECONDS * 1000),
            **options,
            "bootstrap.servers": bootstrap_servers,
            "enable.idempotence": True,
        }
        self._failures: list[KafkaError] = []
        self._servers = bootstrap_servers
        self._given = 0
        self._written = 0
        try:
            self._producer = Producer(settings)
        except KafkaException as error:
            # Its words name the option, and sometimes show its value.
            raise ConfigError(
                f"[kafka] producer: librdkafka refuses it: {_without_secrets(error, options)}"
            ) from None

    def __enter__(self) -> KafkaPublisher:
        return self

    def __exit__(self, *_: object) -> None:
        # Records on their way after an error are given up: nobody was informed that they are there.
        self._producer.purge()
        self._producer.flush(1.0)

    def publish(self, topic: str, records: Iterable[Record]) -> int:
        """Write records to a topic, those of one key in order; durable when it returns, as far as the topic's
        replicas are. Gives how many. Raises PublishError that says how many were written."""
        self._failures.clear()
        self._written = 0
        if not self._given:
            self._require_answer(topic)
        refused = ""
        for key, payload, *headers in records:
            self._given += 1
            if not self._give(topic, key, payload, *headers):
                refused = f" with line {self._given:,} of what was given, {len(payload):,} bytes"
            if self._failures:
                break
        self._producer.flush()
        if self._failures:
            failure = f"the topic {topic} could not be written to{refused}: {self._failures[0].str()}"
            raise PublishError(failure, self._written)
        return self._written

    def _require_answer(self, topic: str) -> None:
        """Raises PublishError when nobody answers, for which a record would be waited for as long as it may take."""
        try:
            self._producer.list_topics(topic, ANSWER_SECONDS)
        except KafkaException as error:
            raise PublishError(
                f"Kafka at {self._servers} does not answer ({error.args[0].name()})", 0
            ) from None

    def _give(
        self, topic: str, key: bytes | None, payload: bytes, headers: dict[str, str] | None = None
    ) -> bool:
        """Whether the client takes it, which it does not of one that is too large."""
        while True:
            try:
                self._producer.produce(topic, payload, key, on_delivery=self._delivered, headers=headers)
            except BufferError:
                self._producer.poll(0.1)
            except KafkaException as error:
                self._failures.append(error.args[0])
                return False
            else:
                self._producer.poll(0)
                return True

    def _delivered(self, error: KafkaError | None, _: Message) -> None:
        if error is None:
            self._written += 1
        else:
            self._failures.append(error)


def _without_secrets(error: KafkaException, options: Mapping[str, str]) -> str:
    text = str(error.args[0].str())
    # The longest first: a password may begin with the user's name.
    for value in sorted(filter(None, options.values()), key=len, reverse=True):
        text = text.replace(value, "...")
    return text
