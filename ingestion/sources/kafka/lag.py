"""The distance of a flow from the ends of its topics, asked by the Java client with the options of the source."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from typing import Any

from pyspark.sql import SparkSession

from ingestion.sources.kafka.offsets import Offsets
from ingestion.spark.worker_errors import is_of_spark

log = logging.getLogger(__name__)

SECONDS = 2
"""The wait for an answer."""
PAUSE_SECONDS = 30.0
"""The pause after there was no answer: the micro-batches must not wait for it."""

_DESERIALIZERS = {
    f"{part}.deserializer": "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    for part in ("key", "value")
}


class KafkaLag:
    """Asks the brokers: for the reports after each micro-batch, and for the metrics, which go on while none ends. Safe
    for several threads: Java's consumer is not, so one asks after another."""

    def __init__(self, session: SparkSession, options: Mapping[str, str]) -> None:
        """`options` are those of the Java consumer."""
        self._jvm: Any = session._jvm
        self._options = options
        self._consumer: Any = None
        self._names: set[tuple[str, int]] = set()
        self._partitions: Any = None
        self._silent_until = 0.0
        self._is_closed = False
        self._asking = threading.Lock()

    def behind(self, taken: Offsets) -> dict[str, int] | None:
        """By `TOPIC/PARTITION`, the offsets after the last that was taken, of which some may hold no record; None if
        nobody answers."""
        with self._asking:
            # Behind another who got no answer nobody waits for one again.
            if not taken or self._is_closed or time.monotonic() < self._silent_until:
                return None
            try:
                return _lag(self._ends(taken), taken)
            except Exception as error:
                if not is_of_spark(error):
                    raise
                # Only the type: its message may hold the value of an option.
                log.debug("the lag cannot be determined: %s", type(error).__name__)
                self._silent_until = time.monotonic() + PAUSE_SECONDS
                self._disconnect()
                return None

    def close(self) -> None:
        """Close the connections. Nothing is distinguished from then on."""
        with self._asking:
            self._is_closed = True
            self._disconnect()

    def _disconnect(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            try:
                consumer.close()
            except Exception as error:
                if not is_of_spark(error):
                    raise
                log.debug("a consumer of Kafka cannot be closed: %s", type(error).__name__)

    def _ends(self, taken: Offsets) -> str:
        """Java's text of where the partitions end: `{TOPIC-PARTITION=OFFSET, ...}`. As a text it is one answer of the
        JVM, and not several for each partition."""
        jvm = self._jvm
        if self._consumer is None:
            properties = jvm.java.util.HashMap()
            for name, value in {**self._options, **_DESERIALIZERS}.items():
                properties.put(name, value)
            self._consumer = jvm.org.apache.kafka.clients.consumer.KafkaConsumer(properties)
        names = {(topic, partition) for topic, offsets in taken.items() for partition in offsets}
        if names != self._names:
            self._partitions = jvm.java.util.ArrayList()
            for topic, partition in names:
                self._partitions.add(jvm.org.apache.kafka.common.TopicPartition(topic, partition))
            self._names = names
        seconds = jvm.java.time.Duration.ofSeconds(SECONDS)
        return str(self._consumer.endOffsets(self._partitions, seconds).toString())


def _lag(ends: str, taken: Offsets) -> dict[str, int]:
    found = {}
    for each in filter(None, ends.strip("{}").split(", ")):
        name, _, end = each.partition("=")
        topic, _, partition = name.rpartition("-")
        found[f"{topic}/{partition}"] = max(0, int(end) - taken[topic][int(partition)])
    return found
