"""Events: records as read, and events as decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

_NAMES = {dict: "an object", list: "an array", str: "text", bool: "true or false", type(None): "null"}


def kind(value: Any) -> str:
    """The kind of a value, without the value."""
    return _NAMES.get(type(value), "a number")


KAFKA = "kafka:"
"""Prefix of positions of Kafka records."""
PULSAR = "pulsar:"
"""Prefix of positions of Pulsar messages."""


class RawRecord(NamedTuple):
    """One record of a source.

    `position` is `file:NAME#LINE` (line from 1), `kafka:TOPIC/PARTITION/OFFSET` or
    `pulsar:TOPIC-partition-N/LEDGER/ENTRY/BATCH`. `source` names the configured source.
    """

    source: str
    position: str
    value: bytes

    def as_arrived(self) -> bytes:
        """The source's bytes, which dead letters keep and replays use."""
        return self.value


class DecryptedRecord(RawRecord):
    """A record that arrived encrypted: `value` is its plaintext, which stays within the stages."""

    _arrived: bytes

    @classmethod
    def of(cls, record: RawRecord, value: bytes) -> Self:
        """A record as it arrived, with its plaintext."""
        decrypted = cls(record.source, record.position, value)
        decrypted._arrived = record.value
        return decrypted

    def as_arrived(self) -> bytes:
        """Still encrypted."""
        return self._arrived


class UndecryptedRecord(RawRecord):
    """An encrypted record that could not be decrypted and is passed on unchanged."""


class Event(NamedTuple):
    """A decoded event.

    `payload` is None, and `raw` empty, for a Kafka record without a payload. `carried` has the values beside the
    payload: `key`, `headers` and `timestamp` of a Kafka record, and `undecrypted` (true) of a record that was passed on
    encrypted. `id` and `ordinal` are None if the envelope has none; the mapping spec can then name their paths in the
    mapped output.
    """

    source: str
    type: str
    id: str | None
    ordinal: int | None
    position: str
    payload: Any
    raw: bytes
    carried: Mapping[str, Any] | None = None

    def is_deletion(self) -> bool:
        """Whether it is a Kafka record without a payload, a tombstone of Kafka."""
        return self.carried is not None and not self.raw

    def context(self) -> dict[str, Any]:
        """The values that a mapping spec reads with `^`: the envelope without the payload."""
        envelope: dict[str, Any] = {
            "source": self.source,
            "type": self.type,
            "id": self.id,
            "ordinal": self.ordinal,
            "position": self.position,
        }
        return envelope if self.carried is None else {**envelope, **self.carried}
