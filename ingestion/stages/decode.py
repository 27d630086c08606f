"""Decode: from a record's bytes to an event, its envelope's fields read from where the source says."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from idgraph import native
from idgraph.model import canonical, paths
from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError
from idgraph.model.events import Event, RawRecord, kind
from idgraph.model.sources import SourceConfig, ValuePlace
from idgraph.model.stamps import read_ordinal

MAX_NAME = 200


class EnvelopeReader:
    """Reads the records of one source. Immutable."""

    def __init__(self, config: SourceConfig) -> None:
        self._source = _PlaceReader(config.source or ValuePlace(const=config.name))
        self._type = _PlaceReader(config.type)
        self._id = _PlaceReader(config.id)
        self._ordinal = _PlaceReader(config.ordinal)
        self._payload = paths.split(config.payload) if config.payload else ()
        self.read: Callable[[RawRecord], Event] = self._native_reader() or self._read
        """Raises EventError with the reason; its message holds no value of the record."""

    def _native_reader(self) -> Callable[[RawRecord], Event] | None:
        places = (self._source, self._type, self._id, self._ordinal)
        if native.events is None or any(place.is_content for place in places):
            return None
        return native.events.reader(
            tuple(place.keys for place in places),
            tuple(place.const for place in places),
            self._payload,
            canonical.decode,
            Event,
            read_ordinal,
            self._read,
        )

    def _read(self, record: RawRecord) -> Event:
        # Reference of `reader` in native/events.c, which calls this for all uncommon records.
        try:
            body = canonical.decode(record.value)
        except RecursionError:
            raise EventError(DeadLetterReason.NOT_JSON, "the record is nested too deeply") from None
        except canonical.MalformedJSON as error:
            raise EventError(DeadLetterReason.NOT_JSON, f"the record is not JSON: {error}") from None
        if type(body) is not dict:
            raise EventError(DeadLetterReason.NOT_OBJECT, "the record is not a JSON object")
        ordinal = self._ordinal.read(body, record)
        event_id = self._id.read(body, record)
        return Event(
            source=event_name(self._source.read(body, record), "source", DeadLetterReason.MISSING_SOURCE),
            type=event_name(self._type.read(body, record), "type", DeadLetterReason.MISSING_TYPE),
            id=None if event_id is None else event_text(event_id, "id"),
            ordinal=None if ordinal is None else read_ordinal(ordinal),
            position=record.position,
            payload=_payload(body, self._payload) if self._payload else body,
            raw=record.value,
        )


class _PlaceReader:
    def __init__(self, place: ValuePlace | None) -> None:
        self.const = place.const if place else None
        self.keys = paths.split(place.path) if place and place.path is not None else None
        self.is_content = bool(place and place.content)

    def read(self, body: dict[str, Any], record: RawRecord) -> Any:
        if self.keys is not None:
            return paths.value_at(body, self.keys)
        if self.is_content:
            return hashlib.sha256(record.value).hexdigest()[:32]
        return self.const


def _payload(body: dict[str, Any], keys: tuple[str, ...]) -> Any:
    """The payload at the place that the source's configuration names: an object, an array, or null, which says nothing.
    Raises EventError for anything else: else a misspelt path would skip all events of its source."""
    found = paths.value_at(body, keys)
    if type(found) in (dict, list):
        return found
    if found is not None:
        raise EventError(
            DeadLetterReason.NOT_OBJECT, f"the record's payload is {kind(found)}, not a JSON object"
        )
    around = paths.value_at(body, keys[:-1])
    if type(around) is not dict or keys[-1] not in around:
        raise EventError(
            DeadLetterReason.NOT_OBJECT,
            "the record has no payload where the source's configuration looks for it",
        )
    return None


def event_text(value: Any, what: str) -> str:
    """A field of the envelope as text. Raises EventError."""
    if type(value) is str and value:
        return value
    if type(value) is int:
        return str(value)
    actual = "empty text" if value == "" else f"{kind(value)}, not text"
    raise EventError(DeadLetterReason.WRONG_TYPE, f"the envelope's {what} is {actual}")


def event_name(value: Any, what: str, missing: DeadLetterReason) -> str:
    """A source or a type. Raises EventError."""
    if value is None:
        raise EventError(missing, f"the record has no {what} where the source's configuration looks for it")
    name = event_text(value, what)
    if len(name) > MAX_NAME:
        raise EventError(
            DeadLetterReason.WRONG_TYPE, f"the envelope's {what} is longer than {MAX_NAME} characters"
        )
    return name
