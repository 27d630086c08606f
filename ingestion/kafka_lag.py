"""How far a flow is behind the ends of its topics, asked by the Java client with the options of the source."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from ingestion.kafka_offsets import Offsets

log = logging.getLogger(__name__)

SECONDS = 2
"""How long an answer is waited for."""
PAUSE_SECONDS = 30.0
"""How long nothing is asked after there was no answer: the micro-batches must not wait for it."""


class KafkaLag:
    """Asks the brokers after each micro-batch. Not safe for several threads."""

    def __init__(self, session: SparkSession, options: Mapping[str, str]) -> None:
        """`options` are those of the Java consumer."""
        self._jvm: Any = session._jvm
        self._options = options
        self._consumer: Any = None
        self._silent_until = 0.0

    def behind(self, taken: Offsets) -> dict[str, int] | None:
        """By `TOPIC/PARTITION`, the offsets after the last that was taken, of which some may hold no record; None if
        nobody answers."""
        if not taken or time.monotonic() < self._silent_until:
            return None
        try:
            return self._asked(taken)
        except Exception as error:
            # Py4J's, whose message may hold the value of an option.
            log.debug("the lag cannot be told: %s", type(error).__name__)
            self._silent_until = time.monotonic() + PAUSE_SECONDS
            self.close()
            return None

    def close(self) -> None:
        """Close the connections."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            try:
                consumer.close()
            except Exception as error:
                log.debug("a consumer of Kafka cannot be closed: %s", type(error).__name__)

    def _asked(self, taken: Offsets) -> dict[str, int]:
        jvm = self._jvm
        if self._consumer is None:
            bytes_as_they_are = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
            options = {
                **self._options,
                "key.deserializer": bytes_as_they_are,
                "value.deserializer": bytes_as_they_are,
            }
            properties = jvm.java.util.HashMap()
            for name, value in options.items():
                properties.put(name, value)
            self._consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
        partitions = jvm.java.util.ArrayList()
        for topic, offsets in taken.items():
            for partition in offsets:
                partitions.add(jvm.org.apache.kafka.common.TopicPartition(topic, partition))
        ends = self._consumer.endOffsets(partitions, jvm.java.time.Duration.ofSeconds(SECONDS))
        return {
            f"{each.topic()}/{each.partition()}": max(0, ends[each] - taken[each.topic()][each.partition()])
            for each in partitions
        }
