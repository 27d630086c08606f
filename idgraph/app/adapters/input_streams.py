"""What the flow's query reads, by the kind of its sources, and the jars that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idgraph.app.java import Artifact, JarSet, jars

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from ingestion.sources.kafka.records import ReadRange
    from ingestion.sources.stream import InputStream
    from sinks.kafka.ranges import KafkaRanges

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
    from idgraph.model.kafka import kafka_sources

    return sorted(jars(SPARK_KAFKA).glob("*.jar")) if kafka_sources(settings.sources_by_name()) else ()


def input_stream(settings: Settings) -> InputStream:
    """The stream of the configured sources."""
    from idgraph.model.kafka import kafka_sources

    sources, checkpoint = settings.sources_by_name(), settings.flow_state() / "checkpoint"
    if topics := kafka_sources(sources):
        from ingestion.sources.kafka.stream import KafkaStream

        reads_ranges = find_spec("confluent_kafka") is not None
        return KafkaStream(topics, settings.kafka, checkpoint, reads_ranges)
    from idgraph.model.sources import file_sources
    from ingestion.sources.files.stream import FileStream

    return FileStream(file_sources(sources), settings.flow.max_files_per_batch, checkpoint)


def ranges_config(settings: Settings) -> dict[str, Any]:
    """What a worker needs to know to read what Spark cannot: where its own configuration is, not the options of Kafka's
    client, which may be passwords."""
    from idgraph.model.kafka import kafka_sources

    if not kafka_sources(settings.sources_by_name()):
        return {}
    return {"ranges": {"config": str(settings.file) if settings.file else None}}


def open_ranges(config: dict[str, Any]) -> ReadRange | None:
    """What reads ranges of offsets; None without Kafka or its client."""
    if "ranges" not in config or find_spec("confluent_kafka") is None:
        return None
    file = config["ranges"]["config"]
    # Read when it is needed, which is hardly ever.
    opened = cache(partial(_opened_ranges, file))
    return lambda topic, partition, since, until: opened().records(topic, partition, since, until)


def _opened_ranges(file: str | None) -> KafkaRanges:
    """Raises ConfigError where the file of the configuration is not on this machine."""
    from idgraph.app.settings.document import Settings, load
    from sinks.kafka.ranges import KafkaRanges

    kafka = (Settings() if file is None else load(Path(file))).kafka
    return KafkaRanges(kafka.bootstrap_servers, kafka.producer_options())
