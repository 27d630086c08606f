"""Writing records to Pulsar, with its client."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pulsar

from idgraph.model.errors import PublishError
from idgraph.model.pulsar import PulsarSettings, full_name
from sinks.pulsar.ranges import connected

SEND_MILLISECONDS = 60_000
"""The time for which a message is sent again, after which it counts as not published."""

Record = tuple[bytes | None, bytes] | tuple[bytes | None, bytes, dict[str, str]]
"""Key, payload, and headers if it has any."""


class PulsarPublisher:
    """Publishes records to topics of one cluster. A context manager; not safe for several threads. A message whose answer was
    lost can be there twice, unless the namespace removes duplicates."""

    def __init__(self, settings: PulsarSettings) -> None:
        """Raises ConfigError for files that cannot be used."""
        self._settings = settings
        self._client = connected(settings)
        self._producers: dict[str, pulsar.Producer] = {}
        self._failures: list[str] = []
        self._written = 0

    def __enter__(self) -> PulsarPublisher:
        return self

    def __exit__(self, *_: object) -> None:
        # Without waiting: messages on their way after an error are given up.
        self._client.shutdown()

    def publish(self, topic: str, records: Iterable[Record]) -> int:
        """Write records to a topic, those of one key in order; durable when it returns. Gives how many. A key is UTF-8, headers
        become properties. Raises PublishError that says how many were written."""
        self._failures.clear()
        self._written = 0
        try:
            producer = self._producer(topic)
            for key, payload, *headers in records:
                producer.send_async(
                    payload,
                    self._delivered,
                    headers[0] if headers else None,
                    partition_key=key.decode() if key else None,
                )
                if self._failures:
                    break
            producer.flush()
        except pulsar.PulsarException as error:
            self._failures.append(type(error).__name__)
        if self._failures:
            where = f"the topic {topic} of Pulsar at {self._settings.service_url}"
            raise PublishError(f"{where} could not be written to: {self._failures[0]}", self._written)
        return self._written

    def _producer(self, topic: str) -> pulsar.Producer:
        if topic not in self._producers:
            self._producers[topic] = self._client.create_producer(
                f"persistent://{full_name(topic)}",
                send_timeout_millis=SEND_MILLISECONDS,
                compression_type=pulsar.CompressionType.LZ4,
                block_if_queue_full=True,
                batching_enabled=True,
                batching_type=pulsar.BatchingType.KeyBased,
                max_pending_messages_across_partitions=50_000,
            )
        return self._producers[topic]

    def _delivered(self, result: Any, _: Any) -> None:
        if result == pulsar.Result.Ok:
            self._written += 1
        else:
            self._failures.append(str(result).removeprefix("Result."))
