"""Readings of text that Jolt's extra functions and JMESPath's share."""

from __future__ import annotations

from datetime import UTC, datetime

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_TIME = 64
_last: list[tuple[str, int]] = [("", 0)]
"""The text that was read last. Texts are compared by identity: a pair is one value to all threads."""


def epoch_milliseconds(text: str) -> int | None:
    """RFC 3339 or ISO 8601 time with an offset as epoch milliseconds, rounded down; None if it is none.

    A time without an offset could mean any hour, so it is none.
    """
    # Specs read the time of an event more than once: for its order, and as an attribute.
    known, last = _last[0]
    if known is text and text:
        return last
    if len(text) > _LONGEST_TIME:
        return None
    try:
        since = datetime.fromisoformat(text) - _EPOCH
    except (ValueError, OverflowError, TypeError):
        # TypeError: a time without an offset cannot be compared with one that has one.
        return None
    # Faster than to divide by a timedelta of a millisecond, and as exact.
    read = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    _last[0] = text, read
    return read


def strip_zeros(text: str) -> str:
    """`00480` is `480`, `000` is `0`."""
    return text.lstrip("0") or text[-1:]
