"""The total order that decides between two values."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import EventError
from idgraph.model.events import kind

ORDINAL_MIN = -(2**63)
ORDINAL_MAX = 2**63 - 1


class Stamp(NamedTuple):
    """Compares field by field; the later stamp wins under the policy `latest`.

    `ordinal` is an int64 that orders a source's events: epoch milliseconds or the source's own sequence.
    """

    priority: int
    ordinal: int
    source: str
    event_id: str


class SpecRef(NamedTuple):
    """The mapping spec and version that made a value."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def epoch_ms(moment: datetime) -> int:
    """Epoch milliseconds of a time with an offset, rounded down."""
    return (moment - _EPOCH) // _MILLISECOND


def read_ordinal(value: Any) -> int:
    """An integer unchanged; RFC 3339 text with an offset as epoch milliseconds, rounded down.

    Raises EventError `bad_ordinal` for anything else. Text without an offset is ambiguous.
    """
    if type(value) is int:
        if ORDINAL_MIN <= value <= ORDINAL_MAX:
            return value
        raise EventError(DeadLetterReason.BAD_ORDINAL, "the ordinal does not fit 64 bits")
    if type(value) is float and value.is_integer():
        return read_ordinal(int(value))
    if type(value) is str:
        try:
            moment = datetime.fromisoformat(value)
        except ValueError:
            raise EventError(
                DeadLetterReason.BAD_ORDINAL, "the ordinal is text but no RFC 3339 time"
            ) from None
        if moment.tzinfo is None:
            raise EventError(DeadLetterReason.BAD_ORDINAL, "the ordinal is a time without an offset")
        return epoch_ms(moment)
    raise EventError(DeadLetterReason.BAD_ORDINAL, f"the ordinal is {kind(value)}, not an integer or a time")


def read_moment(text: str) -> int:
    """Epoch milliseconds, of a text that has them or an RFC 3339 time with an offset. Raises ValueError."""
    try:
        return read_ordinal(int(text) if text.removeprefix("-").isdecimal() else text)
    except EventError:
        raise ValueError(
            f"{text} is neither epoch milliseconds nor an RFC 3339 time with an offset, as 2026-03-31T12:00:00Z"
        ) from None
