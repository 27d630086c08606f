"""Events as they were read and as they were decoded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

_NAMES = {dict: "an object", list: "an array", str: "text", bool: "true or false", type(None): "null"}


def kind(value: Any) -> str:
    """What a value of an event is, without showing it."""
    return _NAMES.get(type(value), "a number")


KAFKA = "kafka:"
"""What positions of records of Kafka begin with."""


class RawRecord(NamedTuple):
    """One record as a source gave it.

    `position` says where: `file:NAME#LINE` (line from 1) or `kafka:TOPIC/PARTITION/OFFSET`.
    `source` names the configured source that read it.
    """

    source: str
    position: str
    value: bytes

    def as_arrived(self) -> bytes:
        """The bytes that the source gave: what may be kept of a record, and is taken through the stages again."""
        return self.value


class DecryptedRecord(RawRecord):
    """A record that arrived encrypted: `value` is what was decrypted of it, and stays in the stages."""

    _arrived: bytes

    @classmethod
    def of(cls, record: RawRecord, value: bytes) -> Self:
        """A record as it arrived, and what was decrypted of it."""
        decrypted = cls(record.source, record.position, value)
        decrypted._arrived = record.value
        return decrypted

    def as_arrived(self) -> bytes:
        """Still encrypted."""
        return self._arrived


class UndecryptedRecord(RawRecord):
    """A record that arrived encrypted, could not be decrypted, and is passed on as it is."""


class Event(NamedTuple):
    """What a source published, its envelope understood.

    `payload` is None, and `raw` empty, for a record of Kafka that has only a key. `carried` is what stands beside the
    payload: `key`, `headers` and `timestamp` of a record of Kafka, and `undecrypted` (true) of one that was passed on
    without being decrypted. `id` and `ordinal` are None where the envelope has none;
    the mapping spec may then name their place in the mapped output.
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
        """Whether it is a record of Kafka without a payload, which Kafka calls a tombstone."""
        return self.carried is not None and not self.raw

    def context(self) -> dict[str, Any]:
        """What a mapping spec may look up with `^`: the envelope without the payload."""
        envelope: dict[str, Any] = {
            "source": self.source,
            "type": self.type,
            "id": self.id,
            "ordinal": self.ordinal,
            "position": self.position,
        }
        return envelope if self.carried is None else {**envelope, **self.carried}
