"""What the flow's query reads, by the kind of its sources, and the jars that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from app.jars.maven import Artifact, JarSet, jars
from app.settings import Settings
from ingestion.kafka_configuration import kafka_sources
from ingestion.source_files import file_sources

if TYPE_CHECKING:
    from ingestion.input_stream import InputStream

SPARK_KAFKA = JarSet(
    "spark-kafka-4.2.0",
    (
        Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", alone=True),
        # Its own version is not everywhere; without Kerberos nothing of it runs (docs/adr/0023-kafka.md).
        Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1", alone=True),
        Artifact("org.apache.kafka", "kafka-clients", "3.9.2", alone=True),
        Artifact("org.apache.commons", "commons-pool2", "2.13.1", alone=True),
    ),
)
"""Spark's Kafka connector. The rest of what it depends on is in PySpark."""


def needed_jars(settings: Settings) -> Sequence[Path]:
    """Jars beside Spark's own; fetched when they are first needed. Raises ConfigError when they cannot be had."""
    return sorted(jars(SPARK_KAFKA).glob("*.jar")) if kafka_sources(settings.sources_by_name()) else ()


def input_stream(settings: Settings) -> InputStream:
    """The stream of the configured sources."""
    sources = settings.sources_by_name()
    if topics := kafka_sources(sources):
        from ingestion.kafka_stream import KafkaStream

        return KafkaStream(topics, settings.kafka, settings.flow_state() / "checkpoint")
    from ingestion.file_stream import FileStream

    return FileStream(file_sources(sources), settings.flow.max_files_per_batch)
