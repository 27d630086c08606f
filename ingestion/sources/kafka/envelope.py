"""Decode for topics: the envelope of a record whose fields may also stand in its key, headers and timestamp."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import msgspec

from idgraph.model import canonical
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError
from idgraph.model.events import Event, RawRecord, UndecryptedRecord
from idgraph.model.sources import SourceConfig, ValuePlace
from idgraph.model.stamps import read_ordinal
from idgraph.model.topics import TopicSource
from ingestion.sources.payload_formats import PayloadFormats
from ingestion.stages.decode import EnvelopeReader, event_name, event_text
from transforms.payloads import Decode

_MARK = b"base64:"

Headers = Sequence[tuple[str, bytes | None]]


class Carried(msgspec.Struct, array_like=True):
    """The fields of a record beside its payload. Bytes that are not UTF-8, or begin with `base64:`, are `base64:` and
    their base64.

    `timestamp` is in epoch milliseconds. If several headers have a name, the last counts, as in most clients. Pulsar's have the
    `producer`'s name, and with a schema `TENANT/NAMESPACE/TOPIC/VERSION`.
    """

    key: str | None
    headers: dict[str, str | None]
    timestamp: int
    producer: str | None = None
    schema: str | None = None

    def context(self) -> dict[str, object]:
        """As a mapping spec may look it up."""
        found: dict[str, object] = {"key": self.key, "headers": self.headers, "timestamp": self.timestamp}
        return found if self.producer is None else {**found, "producer": self.producer}


class Frame(NamedTuple):
    """A record taken apart; a tombstone has no payload."""

    carried: Carried
    payload: bytes | None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Carried).decode


def frame(
    key: bytes | None,
    headers: Headers,
    timestamp: int,
    payload: bytes | None,
    producer: str | None = None,
    schema: str | None = None,
) -> bytes:
    """A record as bytes."""
    if key is None and not headers and producer is None:
        first = b"[null,{},%d]" % timestamp
    else:
        fields = (_text(key), {name: _text(value) for name, value in headers}, timestamp)
        first = _encode(fields if producer is None else (*fields, producer, schema))
    return first if payload is None else first + b"\n" + payload


def unframe(record: bytes) -> Frame:
    """The inverse of `frame`. Raises EventError for other bytes."""
    first, feed, payload = record.partition(b"\n")
    try:
        return Frame(_decode(first), payload if feed else None)
    except (msgspec.DecodeError, RecursionError):
        raise EventError(DeadLetterReason.NOT_JSON, "this is no record of Kafka") from None


def payload_of(record: bytes) -> bytes | None:
    """The payload of what `frame` made; None for a tombstone."""
    _, feed, payload = record.partition(b"\n")
    return payload if feed else None


def with_payload(record: bytes, payload: bytes) -> bytes:
    """The same record with another payload."""
    return record.partition(b"\n")[0] + b"\n" + payload


def _text(content: bytes | None) -> str | None:
    if content is None:
        return None
    # Text that begins so is marked too: no two keys are written the same.
    if not content.startswith(_MARK):
        with suppress(UnicodeDecodeError):
            return content.decode()
    return (_MARK + base64.b64encode(content)).decode()


_ELSEWHERE = ValuePlace(const="-")
"""Stands for what the payload does not say."""


class KafkaEnvelopeReader:
    """Reads the records of one source in topics. Immutable."""

    def __init__(
        self,
        config: TopicSource,
        decode: Decode | None = None,
        by_schema: Callable[[str | None], Decode] | None = None,
    ) -> None:
        """`decode` makes JSON of payloads that are none; instead of it `by_schema` gives what does so for a named schema."""
        self._config = config
        self._decode = decode
        self._by_schema = by_schema
        self._carried: dict[str, ValuePlace] = {}
        stand_ins: dict[str, ValuePlace | None] = {}
        for field in ("source", "type", "id", "ordinal"):
            place: ValuePlace | None = getattr(config, field)
            if place is not None and place.is_carried():
                self._carried[field] = place
                stand_ins[field] = _ELSEWHERE if field in ("source", "type") else None
        self._is_content = config.id is not None and config.id.content
        if self._is_content:
            stand_ins["id"] = None
        self._payload_reader = EnvelopeReader(config.model_copy(update=stand_ins))

    def read(self, record: RawRecord) -> Event:
        """Raises EventError with the reason, whose message holds no value of the record, and SchemaRegistryError."""
        carried, payload = unframe(record.value)
        if payload is None:
            return self._tombstone(record, carried)
        decode = self._by_schema(carried.schema) if self._by_schema else self._decode
        text = decode(payload) if decode else payload
        event = self._payload_reader.read(RawRecord(record.source, record.position, text))
        fields = self._carried_fields(carried)
        if self._is_content:
            fields["id"] = _content_id(carried, payload)
        return event._replace(carried=carried.context(), **fields)

    def _tombstone(self, record: RawRecord, carried: Carried) -> Event:
        """A record without a payload, in which nothing can be looked up: what its payload would have said is its
        position, which is as stable, and its timestamp."""
        fields: dict[str, Any] = {
            "source": _const(self._config.source) or self._config.name,
            # Not a constant, which is for those with a payload: a spec must be able to distinguish them.
            "type": self._config.tombstone_type,
            "id": record.position,
            "ordinal": carried.timestamp
            if self._config.ordinal_unit == "epoch_ms"
            else _const(self._config.ordinal),
            **self._carried_fields(carried),
        }
        return Event(**fields, position=record.position, payload=None, raw=b"", carried=carried.context())

    def _carried_fields(self, carried: Carried) -> dict[str, Any]:
        """The fields that stand beside the payload."""
        fields = {field: _value(place, carried) for field, place in self._carried.items()}
        for field, missing in (
            ("source", DeadLetterReason.MISSING_SOURCE),
            ("type", DeadLetterReason.MISSING_TYPE),
        ):
            if field in fields:
                fields[field] = event_name(fields[field], field, missing)
        if fields.get("id") is not None:
            fields["id"] = event_text(fields["id"], "id")
        if fields.get("ordinal") is not None:
            fields["ordinal"] = read_ordinal(_number(fields["ordinal"]))
        return fields


class _MarkingReader:
    """Marks the events of records that were passed on without being decrypted."""

    def __init__(self, reader: EnvelopeReader | KafkaEnvelopeReader) -> None:
        self._reader = reader

    def read(self, record: RawRecord) -> Event:
        event = self._reader.read(record)
        if not isinstance(record, UndecryptedRecord):
            return event
        return event._replace(carried={**(event.carried or {}), "undecrypted": True})


def envelope_reader(
    config: SourceConfig, formats: PayloadFormats
) -> EnvelopeReader | KafkaEnvelopeReader | _MarkingReader:
    """A reader of a source's envelopes. Raises PayloadSchemaError."""
    reader: EnvelopeReader | KafkaEnvelopeReader = EnvelopeReader(config)
    if isinstance(config, TopicSource):
        by_schema = formats.by_schema(config)
        reader = KafkaEnvelopeReader(config, None if by_schema else formats.decoder(config), by_schema)
    return _MarkingReader(reader) if config.decryptor and config.decryptor.on_failure == "pass_on" else reader


def _content_id(carried: Carried, payload: bytes) -> str:
    # Without the timestamp: a record that is sent again is the same event.
    beside = canonical.encode([carried.key, carried.headers])
    return hashlib.sha256(beside + b"\n" + payload).hexdigest()[:32]


def _value(place: ValuePlace, carried: Carried) -> Any:
    if place.key:
        return carried.key
    if place.producer:
        return carried.producer
    return carried.timestamp if place.header is None else carried.headers.get(place.header)


def _const(place: ValuePlace | None) -> Any:
    return place.const if place else None


def _number(value: Any) -> Any:
    # Headers are text, and most orders are numbers.
    return int(value) if isinstance(value, str) and value.isascii() and value.isdigit() else value
