"""Opening what payloads need: decryption services, and the schemas of their formats."""

from __future__ import annotations

import base64
import functools
from typing import TYPE_CHECKING, Any

from idgraph.model.errors import ConfigError, PayloadSchemaError

if TYPE_CHECKING:
    from idgraph.app.settings.document import Settings
    from idgraph.model.decryption import Decryptor
    from idgraph.model.sources import DecryptorConfig
    from ingestion.sources.payload_formats import PayloadFormats
    from ingestion.stages.decrypt import Decryptors


def decryptors_config(settings: Settings) -> dict[str, Any]:
    """What a process needs to know beside the sources' own tables."""
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
    """What a process needs to know to decode payloads: the content of schema files, and where the registry is.

    Raises ConfigError for a file that cannot be read.
    """
    from idgraph.model.kafka import kafka_sources

    schemas: dict[str, str] = {}
    for name, source in kafka_sources(settings.sources_by_name()).items():
        if source.schema_file is not None:
            try:
                schemas[name] = base64.b64encode(source.schema_file.read_bytes()).decode()
            except OSError as error:
                raise ConfigError(f"source {name}: {source.schema_file}: {error.strerror}") from None
    return {"schemas": schemas, "registry": settings.kafka.registry.model_dump(mode="json")}


def open_formats(config: dict[str, Any]) -> PayloadFormats:
    """The formats of all sources; nothing is compiled or asked for yet."""
    from ingestion.sources.payload_formats import PayloadFormats

    schemas = {name: base64.b64decode(content) for name, content in config["schemas"].items()}
    registry = config["registry"]
    if registry["url"] is None:
        return PayloadFormats(schemas)
    from sinks.http.schema_registry import HttpSchemaRegistry, RegistryLocation

    place = RegistryLocation(**{each: registry[each] for each in RegistryLocation._fields})
    return PayloadFormats(schemas, HttpSchemaRegistry(place), registry["on_outage"] == "wait")


def require_formats(settings: Settings, formats: PayloadFormats) -> None:
    """Raises ConfigError for a schema file that cannot be used, and when what reads it is not installed."""
    from idgraph.model.kafka import kafka_sources

    for name, source in kafka_sources(settings.sources_by_name()).items():
        try:
            formats.decoder(source)
            if source.format == "registry":
                import transforms.payloads.avro
                import transforms.payloads.protobuf  # noqa: F401
        except PayloadSchemaError as error:
            raise ConfigError(f"source {name}: {source.schema_file}: {error}") from None
        except ModuleNotFoundError:
            from idgraph.app.package import install_command

            raise ConfigError(
                f"source {name}: {source.format} payloads need fastavro and protobuf; install them with "
                f"`{install_command('schemas')}`"
            ) from None
