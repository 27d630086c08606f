"""What the payloads of a source in Kafka are written in: JSON, or Avro or Protobuf by a schema from a file or a registry."""

from __future__ import annotations

from collections.abc import Mapping

from idgraph.model.errors import ConfigError, PayloadSchemaError, SchemaRegistryError
from ingestion.sources.kafka.configuration import KafkaSource
from ingestion.sources.registry_payloads import RegistryPayloads, schema_decoder
from transforms.payloads.schemas import Decode, SchemaRegistry

NOT_OF_THE_EVENT = (SchemaRegistryError, ConfigError)
"""What reading a payload raises where no event is to blame: a registry that is away, credentials for it that cannot be
read."""


class PayloadFormats:
    """Knows how the payloads of each source are written; each schema is asked for and compiled once a process.

    `schemas` are the contents of schema files, by source. With `waits` a registry that is away is an error that stops
    the micro-batch, to be retried; without it events become dead letters.
    """

    def __init__(
        self,
        schemas: Mapping[str, bytes] | None = None,
        registry: SchemaRegistry | None = None,
        waits: bool = True,
    ) -> None:
        self._schemas = schemas or {}
        self._registry = RegistryPayloads(registry, schema_decoder, waits) if registry else None
        self._decoders: dict[str, Decode] = {}

    def decoder(self, source: KafkaSource) -> Decode | None:
        """What turns the payloads of a source into JSON; None if they are. Raises PayloadSchemaError for a schema that
        cannot be used. What it gives raises EventError, and SchemaRegistryError."""
        if source.format == "json":
            return None
        if source.name not in self._decoders:
            self._decoders[source.name] = self._made(source)
        return self._decoders[source.name]

    def _made(self, source: KafkaSource) -> Decode:
        if source.format == "registry":
            if self._registry is None:
                raise PayloadSchemaError(f"source {source.name}: no registry is configured")
            return self._registry.decode
        content = self._schemas[source.name]
        if source.format == "avro":
            from transforms.payloads.avro import avro_decoder

            return avro_decoder(content.decode(errors="replace"))
        from transforms.payloads.protobuf import ProtobufFiles, descriptor_set

        return ProtobufFiles(descriptor_set(content)).decoder(source.message or "")

    def close(self) -> None:
        """Nothing more is asked of the registry."""
        if self._registry is not None:
            self._registry.close()
