"""Formats of payloads in topics: JSON, or Avro or Protobuf by a schema from a file or a registry."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from cachetools import LRUCache

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import ConfigError, EventError, PayloadSchemaError, SchemaRegistryError
from idgraph.model.pulsar import PulsarSource
from idgraph.model.topics import TopicSource
from transforms.payloads import Decode, PayloadSchema, SchemaRegistry

PREFIX_BYTES = 5
KEPT = 1000
"""Schemas that are kept ready, and numbers that are known to name none."""
REFUSED_SECONDS = 30.0
"""Seconds for which a schema that could not be had is not asked for again."""
_MOST_PLACES = 64
"""In the place of a message: each is a message within the one before."""


class _Refused(NamedTuple):
    reason: str
    until: float


class RegistryPayloads:
    """Decodes payloads by the schema whose number leads them. Not safe for several threads."""

    def __init__(
        self,
        registry: SchemaRegistry,
        compiled: Callable[[PayloadSchema], Decode],
        waits: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`compiled` raises PayloadSchemaError. With `waits` a registry that is away is an error that stops the
        micro-batch, to be retried; without it the event becomes a dead letter."""
        self._registry = registry
        self._compiled = compiled
        self._waits = waits
        self._clock = clock
        self._known: LRUCache[int | str, Decode | _Refused] = LRUCache(KEPT)

    def decode(self, payload: bytes) -> bytes:
        """The payload as JSON."""
        if len(payload) < PREFIX_BYTES or payload[0] != 0:
            raise EventError(
                DeadLetterReason.BAD_PAYLOAD, "the payload does not begin with the number of a schema"
            )
        return self.decoder(int.from_bytes(payload[1:PREFIX_BYTES], "big"))(payload[PREFIX_BYTES:])

    def close(self) -> None:
        """Nothing more is asked of the registry."""
        self._registry.close()

    def decoder(self, number: int | str | None) -> Decode:
        """A decoder of the payloads of a schema, None: of a message that names none. Raises EventError."""
        if number is None:
            raise EventError(DeadLetterReason.NO_SCHEMA, "the message was published without a schema")
        known = self._known.get(number)
        if known is None or (isinstance(known, _Refused) and known.until < self._clock()):
            known = self._asked(number)
            self._known[number] = known
        if isinstance(known, _Refused):
            raise EventError(DeadLetterReason.NO_SCHEMA, f"schema {number}: {known.reason}")
        return known

    def _asked(self, number: int | str) -> Decode | _Refused:
        try:
            return self._compiled(self._registry.schema(number))
        except PayloadSchemaError as error:
            reason = str(error)
        except SchemaRegistryError as error:
            if self._waits:
                raise
            reason = str(error)
        return _Refused(reason, self._clock() + REFUSED_SECONDS)


def schema_decoder(schema: PayloadSchema) -> Decode:
    """A decoder of the bytes after a schema's number. Raises PayloadSchemaError."""
    match schema.kind:
        case "AVRO":
            from transforms.payloads.avro import avro_decoder

            return avro_decoder(schema.text, [text for _, text in schema.references])
        case "PROTOBUF" if schema.message is not None:
            from transforms.payloads.protobuf import ProtobufFiles, descriptor_set, in_order

            return ProtobufFiles(in_order(descriptor_set(b64decode(schema.text)))).decoder(schema.message)
        case "PROTOBUF":
            return _protobuf_decoder(schema)
    return lambda payload: payload


def _protobuf_decoder(schema: PayloadSchema) -> Decode:
    from transforms.payloads.protobuf import ProtobufFiles, message_at, serialized_file

    # A name of its own: the registry calls them all the same.
    file = serialized_file("(the schema)", schema.text)
    files = ProtobufFiles([*(serialized_file(*each) for each in schema.references), file])
    decoders: dict[tuple[int, ...], Decode] = {}

    def decode(payload: bytes) -> bytes:
        places, start = _places(payload)
        decoder = decoders.get(places)
        if decoder is None:
            try:
                decoder = decoders[places] = files.decoder(message_at(file, places))
            except LookupError:
                raise _no_message() from None
        return decoder(payload[start:])

    return decode


def _places(payload: bytes) -> tuple[tuple[int, ...], int]:
    """The index path in its file of the message that follows, and the message's offset."""
    numbers = _zigzag(payload)
    try:
        count, start = next(numbers)
        if count == 0:
            # The first of the file, which most are.
            return (0,), start
        if not 0 < count <= _MOST_PLACES:
            raise _no_message()
        found = [next(numbers) for _ in range(count)]
    except (StopIteration, RuntimeError):
        raise _no_message() from None
    if min(place for place, _ in found) < 0:
        raise _no_message()
    return tuple(place for place, _ in found), found[-1][1]


def _zigzag(payload: bytes) -> Iterator[tuple[int, int]]:
    """Integers as Protobuf writes signed ones, each with where it ends."""
    value = shift = 0
    for end, byte in enumerate(payload, 1):
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield (value >> 1) ^ -(value & 1), end
            value = shift = 0
        elif shift > 63:
            return


def _no_message() -> EventError:
    return EventError(
        DeadLetterReason.BAD_PAYLOAD, "the payload does not say which message of its schema it is"
    )


NOT_OF_THE_EVENT = (SchemaRegistryError, ConfigError)
"""Errors of reading a payload that are no event's fault: a registry that is away, credentials for it that cannot be
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

    def decoder(self, source: TopicSource) -> Decode | None:
        """A decoder of a source's payloads into JSON; None if they are JSON. Raises PayloadSchemaError for a schema
        that cannot be used. The decoder raises EventError and SchemaRegistryError."""
        if source.format == "json":
            return None
        if source.name not in self._decoders:
            self._decoders[source.name] = self._made(source)
        return self._decoders[source.name]

    def by_schema(self, source: TopicSource) -> Callable[[str | None], Decode] | None:
        """Gives decoders by the schemas that messages name beside their payload, as those of Pulsar do; None where none does."""
        is_named = source.format == "registry" and isinstance(source, PulsarSource)
        return self._registry.decoder if self._registry and is_named else None

    def _made(self, source: TopicSource) -> Decode:
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
