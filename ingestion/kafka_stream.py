"""Topics of one Kafka cluster as a stream, through Spark's own connector."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ingestion.intake import Intake
from ingestion.kafka_configuration import KafkaSettings, KafkaSource
from ingestion.kafka_offsets import records_of
from ingestion.kafka_records import COLUMNS

log = logging.getLogger(__name__)

FEW_RECORDS = 5_000
"""Of a micro-batch that runs as one task without a shuffle: about as many as `split_bytes` of files hold."""


class KafkaStream:
    """The records of all sources' topics. `checkpoint` is that of the flow's query."""

    def __init__(self, sources: Mapping[str, KafkaSource], settings: KafkaSettings, checkpoint: Path) -> None:
        self._sources = sources
        self._settings = settings
        self._checkpoint = checkpoint

    def load(self, session: SparkSession, intake: Intake) -> DataFrame:  # noqa: ARG002 - rates are for files
        """The columns of `KafkaRecords`."""
        reader = session.readStream.format("kafka")
        for name, value in self._options(session.sparkContext.defaultParallelism).items():
            reader = reader.option(name, value)
        columns = ("unix_millis(timestamp) AS timestamp" if name == "timestamp" else name for name in COLUMNS)
        return reader.load().selectExpr(*(f"`{each}`" if each.isalpha() else each for each in columns))

    def in_tasks(self, batch: DataFrame, number: int) -> DataFrame:
        """As many tasks as partitions and cores, or one for `FEW_RECORDS`."""
        records = records_of(self._checkpoint, number)
        return batch.coalesce(1) if records is not None and records <= FEW_RECORDS else batch

    def without_secrets(self, text: str) -> str:
        """A mistake in an option may be told with its value."""
        # The longest first: a password may begin with the user's name.
        for secret in sorted(self._settings.secrets(), key=len, reverse=True):
            text = text.replace(secret, "...")
        return text

    def _options(self, cores: int) -> dict[str, str]:
        settings = self._settings
        starting = settings.starting_offsets
        further = {
            f"kafka.{name.removeprefix('kafka.')}": value.get_secret_value()
            for name, value in settings.consumer.items()
        }
        return {
            # A misspelt topic is told rather than made.
            "kafka.allow.auto.create.topics": "false",
            **further,
            **_subscription(self._sources),
            "kafka.bootstrap.servers": settings.bootstrap_servers,
            # Records of transactions that were aborted are no events.
            "kafka.isolation.level": "read_committed",
            "startingOffsets": starting if isinstance(starting, str) else json.dumps(starting),
            "maxOffsetsPerTrigger": str(settings.max_offsets_per_batch),
            "includeHeaders": "true",
            # What is gone before it was read stops the flow.
            "failOnDataLoss": "true",
            # A large micro-batch of one partition uses all cores.
            "minPartitions": str(cores),
        }


def _subscription(sources: Mapping[str, KafkaSource]) -> dict[str, str]:
    """One subscription for the topics of all sources."""
    if all(source.topics for source in sources.values()):
        return {"subscribe": ",".join(topic for source in sources.values() for topic in source.topics)}
    patterns = [source.topic_pattern for source in sources.values() if source.topic_pattern]
    names = [re.escape(topic) for source in sources.values() for topic in source.topics]
    return {"subscribePattern": "|".join(f"(?:{each})" for each in [*names, *patterns])}
