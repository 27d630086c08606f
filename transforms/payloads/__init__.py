"""Avro and Protobuf payloads as JSON: the schemas that they were written with, and where the schemas come from."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Literal, NamedTuple, Protocol


def exact_decimal(unscaled: bytes, scale: int) -> Decimal:
    """A big-endian two's complement integer, shifted by `scale` digits; no digit is lost. Raises ValueError for more
    digits than Python turns into text (4,300)."""
    # As text: any context of arithmetic would round.
    return Decimal(f"{int.from_bytes(unscaled, 'big', signed=True)}E{-scale}")


Decode = Callable[[bytes], bytes]
"""A payload to JSON, every number exact. Raises EventError for a payload that its schema does not fit; the message
holds no value of it."""

Kind = Literal["AVRO", "PROTOBUF", "JSON"]
"""As registries call them."""


class PayloadSchema(NamedTuple):
    """A schema as a registry keeps it. `text` is JSON for Avro, and for Protobuf the base64 of a FileDescriptorProto; with
    `message`, the full name of the payloads' one, of a FileDescriptorSet.

    `references` are the names and texts of the schemas that it is built on, each after those that it needs itself.
    """

    kind: Kind
    text: str
    references: tuple[tuple[str, str], ...] = ()
    message: str | None = None


class SchemaRegistry(Protocol):
    """Gives schemas by their number, in Pulsar `TENANT/NAMESPACE/TOPIC/VERSION`, which means the same for ever."""

    def schema(self, number: int | str) -> PayloadSchema:
        """Blocks. Raises PayloadSchemaError when there is no such schema, and SchemaRegistryError, which is retryable,
        when nobody can determine."""
        ...

    def close(self) -> None: ...
