"""Readings of text that Jolt's extra functions and JMESPath's share."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from idgraph import native

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_read = datetime.fromisoformat
_MILLISECONDS_A_DAY = 86_400_000
_LONGEST_TIME = 64
_last: tuple[str | None, int, datetime, int] = (None, 0, _EPOCH, 0)
"""The text that was read last, what it is, and the midnight before it, twice. One value to all threads."""


@native.reference("epoch_milliseconds")
def epoch_milliseconds(text: str, otherwise: Any = None) -> Any:
    """RFC 3339 or ISO 8601 time with an offset as epoch milliseconds, rounded down; `otherwise` if it is none.

    A time without an offset could mean any hour, so it is none.
    """
    global _last  # noqa: PLW0603 - specs read the time of an event more than once, and the next event's is near
    known, read, midnight, base = _last
    # By identity: equal texts may be long.
    if known is text:
        return read
    if len(text) > _LONGEST_TIME:
        return otherwise
    try:
        since = _read(text) - midnight
    except (ValueError, OverflowError, TypeError):
        # TypeError: a time without an offset cannot be compared with one that has one.
        return otherwise
    if since.days:
        base += since.days * _MILLISECONDS_A_DAY
        try:
            midnight += timedelta(days=since.days)
        except OverflowError:  # Python has no day before the first or after the last one
            return base + since.seconds * 1000 + since.microseconds // 1000
    # Small numbers: faster than to divide by a timedelta of a millisecond, and as exact.
    read = base + (since.seconds * 1000 + since.microseconds // 1000)
    _last = text, read, midnight, base
    return read


@native.reference("strip_zeros")
def strip_zeros(text: str) -> str:
    """`00480` is `480`, `000` is `0`."""
    return text.lstrip("0") or text[-1:]
