"""A Kafka record as bytes: what stands beside its payload, then the payload as it was published.

Stages, dead letters and replay have one value for each record, so key and headers are in it. The first line is a JSON
array of key, headers and timestamp, which holds no line feed; the payload follows it, and a record without a payload
has no line feed at all.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

import msgspec

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError

_MARK = b"base64:"

Headers = Sequence[tuple[str, bytes | None]]


class Carried(msgspec.Struct, array_like=True):
    """What a record carries beside its payload. Bytes that are not UTF-8, or begin with `base64:`, are `base64:` and
    their base64.

    `timestamp` is in epoch milliseconds. Of several headers of a name the last counts, as in most clients.
    """

    key: str | None
    headers: dict[str, str | None]
    timestamp: int

    def context(self) -> dict[str, object]:
        """As a mapping spec may look it up."""
        return {"key": self.key, "headers": self.headers, "timestamp": self.timestamp}


class Frame(NamedTuple):
    """A record taken apart; a tombstone has no payload."""

    carried: Carried
    payload: bytes | None


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Carried).decode


def frame(key: bytes | None, headers: Headers, timestamp: int, payload: bytes | None) -> bytes:
    """A record as bytes."""
    if key is None and not headers:
        first = b"[null,{},%d]" % timestamp
    else:
        first = _encode(Carried(_text(key), {name: _text(value) for name, value in headers}, timestamp))
    return first if payload is None else first + b"\n" + payload


def unframe(record: bytes) -> Frame:
    """What `frame` was given. Raises EventError for other bytes."""
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
    # Text that begins so is marked too: no two keys are reported the same.
    if not content.startswith(_MARK):
        with suppress(UnicodeDecodeError):
            return content.decode()
    return (_MARK + base64.b64encode(content)).decode()
