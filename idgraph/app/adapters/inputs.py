"""The input streams of a flow by the kind of its sources, with the decryption services and schemas of their payloads."""

from __future__ import annotations

import base64
import functools
from collections.abc import Sequence
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idgraph.app.adapters.extras import needing
from idgraph.app.java import Artifact, JarSet, jars
from idgraph.model.errors import ConfigError, PayloadSchemaError

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.model.decryption import Decryptor
    from idgraph.model.flows import HeldSources
    from idgraph.model.pulsar import PulsarSettings
    from idgraph.model.pulsar_ledgers import PulsarAdmin
    from idgraph.model.sources import DecryptorConfig
    from ingestion.sources.kafka.records import ReadRange
    from ingestion.sources.payload_formats import PayloadFormats
    from ingestion.sources.stream import InputStream
    from ingestion.stages.decrypt import Decryptors
    from sinks.kafka.topics import KafkaRanges


SPARK_KAFKA = JarSet(
    "spark-kafka-4.2.0",
    (
        Artifact("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", alone=True),
        # Its own version is not everywhere; without Kerberos none of its code runs (docs/adr/0023-kafka.md).
        Artifact("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.1.0-preview1", alone=True),
        Artifact("org.apache.kafka", "kafka-clients", "3.9.2", alone=True),
        Artifact("org.apache.commons", "commons-pool2", "2.13.1", alone=True),
    ),
)
"""Spark's Kafka connector. Its other dependencies are in PySpark."""


def needed_jars(settings: Settings) -> Sequence[Path]:
    """Jars beside Spark's own; fetched when they are first needed. Raises ConfigError when they cannot be had."""
    from idgraph.model.kafka import kafka_sources

    return sorted(jars(SPARK_KAFKA).glob("*.jar")) if kafka_sources(settings.sources_by_name()) else ()


def input_stream(settings: Settings, held: HeldSources) -> InputStream:
    """The stream of the configured sources, but for those that wait."""
    from idgraph.model.kafka import kafka_sources
    from idgraph.model.pulsar import pulsar_sources

    sources, checkpoint = settings.sources_by_name(), settings.flow_state() / "checkpoint"
    if topics := kafka_sources(sources):
        from ingestion.sources.kafka.stream import KafkaStream

        reads_ranges = find_spec("confluent_kafka") is not None
        return KafkaStream(topics, settings.kafka, checkpoint, held, reads_ranges)
    if messages := pulsar_sources(sources):
        from ingestion.sources.pulsar.stream import PulsarStream

        with needing("pulsar", "Pulsar needs pulsar-client"):
            import sinks.pulsar.ranges  # noqa: F401
        opened = functools.partial(open_pulsar_admin, settings.pulsar)
        return PulsarStream(messages, settings.pulsar, checkpoint, held, opened)
    from idgraph.model.sources import file_sources
    from ingestion.sources.files.stream import FileStream

    return FileStream(file_sources(sources), settings.flow.max_files_per_batch, checkpoint, held)


def open_pulsar_admin(settings: PulsarSettings) -> PulsarAdmin:
    """The admin interface of the cluster. Raises ConfigError for files that cannot be used."""
    from sinks.pulsar.admin import HttpPulsarAdmin

    return HttpPulsarAdmin(settings)


def ranges_config(settings: Settings) -> dict[str, Any]:
    """The configuration of workers that read what Spark cannot: the place of the configuration file, not the options of Kafka's
    client, which may be passwords."""
    from idgraph.model.kafka import kafka_sources
    from idgraph.model.pulsar import pulsar_sources

    if pulsar_sources(settings.sources_by_name()):
        return {"pulsar": settings.pulsar.model_dump(mode="json")}
    if not kafka_sources(settings.sources_by_name()):
        return {}
    return {"ranges": {"config": str(settings.file) if settings.file else None}}


def open_ranges(config: dict[str, Any]) -> ReadRange | None:
    """A reader of ranges; None without topics, or the client of their system."""
    if "pulsar" in config and find_spec("pulsar") is not None:
        from sinks.pulsar.ranges import PulsarRanges

        return PulsarRanges(_pulsar_settings(config)).records
    if "ranges" not in config or find_spec("confluent_kafka") is None:
        return None
    file = config["ranges"]["config"]
    # Read when it is needed, which is hardly ever.
    opened = cache(partial(_opened_ranges, file))
    return lambda topic, partition, since, until: opened().records(topic, partition, since, until)


def _pulsar_settings(config: dict[str, Any]) -> PulsarSettings:
    from idgraph.model.pulsar import PulsarSettings

    return PulsarSettings.model_validate(config["pulsar"])


def _opened_ranges(file: str | None) -> KafkaRanges:
    """Raises ConfigError where the file of the configuration is not on this machine."""
    from idgraph.app.settings.document import Settings, load
    from sinks.kafka.topics import KafkaRanges

    kafka = (Settings() if file is None else load(Path(file))).kafka
    return KafkaRanges(kafka.bootstrap_servers, kafka.producer_options())


def decryptors_config(settings: Settings) -> dict[str, Any]:
    """The configuration of inputs beside the sources' own tables."""
    return {"max_event_bytes": settings.flow.max_event_bytes}


def open_decryptors(config: dict[str, Any]) -> Decryptors:
    """Each is opened when a record needs it."""
    from ingestion.stages.decrypt import Decryptors

    return Decryptors(functools.partial(open_decryptor, config["max_event_bytes"]))


def open_decryptor(max_bytes: int, config: DecryptorConfig) -> Decryptor:
    """The client of one service. Raises ConfigError for files that cannot be read."""
    from sinks.http.decryptor import DecryptionService, HttpDecryptor

    service = DecryptionService(
        config.url,
        config.capacity,
        config.timeout_seconds,
        config.retries,
        max_bytes,
        config.token_file,
        config.ca_file,
    )
    return HttpDecryptor(service)


def formats_config(settings: Settings) -> dict[str, Any]:
    """The configuration of payload formats: the content of schema files, and where the registry is.

    Raises ConfigError for a file that cannot be read.
    """
    from idgraph.model.topics import topic_sources

    schemas: dict[str, str] = {}
    for name, source in topic_sources(settings.sources_by_name()).items():
        if source.schema_file is not None:
            try:
                schemas[name] = base64.b64encode(source.schema_file.read_bytes()).decode()
            except OSError as error:
                raise ConfigError(f"source {name}: {source.schema_file}: {error.strerror}") from None
    registry = {"schemas": schemas, "registry": settings.kafka.registry.model_dump(mode="json")}
    return registry | ranges_config(settings)


def open_formats(config: dict[str, Any]) -> PayloadFormats:
    """The formats of all sources; nothing is compiled or asked for yet."""
    from ingestion.sources.payload_formats import PayloadFormats

    schemas = {name: base64.b64decode(content) for name, content in config["schemas"].items()}
    if "pulsar" in config:
        from sinks.pulsar.schemas import PulsarSchemas

        return PayloadFormats(schemas, PulsarSchemas(_pulsar_settings(config)))
    registry = config["registry"]
    if registry["url"] is None:
        return PayloadFormats(schemas)
    from sinks.http.schema_registry import HttpSchemaRegistry, RegistryLocation

    place = RegistryLocation(**{each: registry[each] for each in RegistryLocation._fields})
    return PayloadFormats(schemas, HttpSchemaRegistry(place), registry["on_outage"] == "wait")


def require_formats(settings: Settings, formats: PayloadFormats) -> None:
    """Raises ConfigError for a schema file that cannot be used, and when the library that reads it is not
    installed."""
    from idgraph.model.topics import topic_sources

    for name, source in topic_sources(settings.sources_by_name()).items():
        try:
            with needing("schemas", f"source {name}: {source.format} payloads need fastavro and protobuf"):
                formats.decoder(source)
                if source.format == "registry":
                    import transforms.payloads.avro
                    import transforms.payloads.protobuf  # noqa: F401
        except PayloadSchemaError as error:
            raise ConfigError(f"source {name}: {source.schema_file}: {error}") from None
