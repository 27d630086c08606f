"""Schemas that payloads were written with, and where they come from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol

Decode = Callable[[bytes], bytes]
"""A payload to JSON, every number exact. Raises EventError for a payload that its schema does not fit; the message
holds no value of it."""

Kind = Literal["AVRO", "PROTOBUF", "JSON"]
"""As registries call them."""


class PayloadSchema(NamedTuple):
    """A schema as a registry keeps it. `text` is JSON for Avro, and for Protobuf the base64 of a FileDescriptorProto.

    `references` are the names and texts of the schemas that it is built on, each after those that it needs itself.
    """

    kind: Kind
    text: str
    references: tuple[tuple[str, str], ...] = ()


class SchemaRegistry(Protocol):
    """Gives schemas by their number, which means the same for ever."""

    def schema(self, number: int) -> PayloadSchema:
        """Blocks. Raises PayloadSchemaError when there is no such schema, and SchemaRegistryError, which is retryable,
        when nobody can determine."""
        ...

    def close(self) -> None: ...
