"""Readings of text that Jolt's extra functions and JMESPath's share."""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


# A spec reads the time of one event several times.
@lru_cache(maxsize=64)
def epoch_milliseconds(text: str) -> int | None:
    """RFC 3339 or ISO 8601 time with an offset as epoch milliseconds, rounded down; None if it is none.

    A time without an offset could mean any hour, so it is none.
    """
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            return None
        since = moment - _EPOCH
    except (ValueError, OverflowError):
        return None
    # Faster than to divide by a timedelta of a millisecond, and as exact.
    return since.days * 86_400_000 + since.seconds * 1000 + since.microseconds // 1000


def strip_zeros(text: str) -> str:
    """`00480` is `480`, `000` is `0`."""
    return text.lstrip("0") or text[-1:]
