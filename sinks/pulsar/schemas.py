"""The schemas of topics, out of Pulsar's own registry."""

from __future__ import annotations

import json
from functools import cached_property

from idgraph.model.errors import PayloadSchemaError, SchemaRegistryError, SourceUnavailableError
from idgraph.model.pulsar import PulsarSettings
from sinks.pulsar.admin import HttpPulsarAdmin
from transforms.payloads import PayloadSchema


class PulsarSchemas:
    """A `SchemaRegistry` by the admin interface. Nothing is opened before the first use."""

    def __init__(self, settings: PulsarSettings) -> None:
        self._settings = settings

    def schema(self, number: int | str) -> PayloadSchema:
        """The schema `TENANT/NAMESPACE/TOPIC/VERSION`. Raises ConfigError for credentials that are refused, and as the protocol
        says."""
        topic, _, version = str(number).rpartition("/")
        try:
            found = self._admin.schema(topic, int(version))
        except SourceUnavailableError as error:
            raise SchemaRegistryError(str(error)) from None
        if found is None:
            raise PayloadSchemaError("Pulsar has no such schema")
        match found["type"]:
            case "AVRO":
                return PayloadSchema("AVRO", found["data"])
            case "PROTOBUF_NATIVE":
                files = json.loads(found["data"])
                return PayloadSchema(
                    "PROTOBUF", files["fileDescriptorSet"], message=files["rootMessageTypeName"]
                )
            case "JSON" | "STRING" | "BYTES" | "NONE":
                return PayloadSchema("JSON", "")
        raise PayloadSchemaError(
            f"schemas of the type {found['type']} cannot be read; for PROTOBUF use the format protobuf with schema_file"
        )

    def close(self) -> None:
        """Close the connections."""
        if "_admin" in self.__dict__:
            self._admin.close()

    @cached_property
    def _admin(self) -> HttpPulsarAdmin:
        return HttpPulsarAdmin(self._settings)
