"""JSON pointers (RFC 6901) into a spec, what was found there, and hints for names that are almost right."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from idgraph import native
from idgraph.model import paths

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


def strip_zeros(text: str) -> str:
    """`00480` is `480`, `000` is `0`."""
    return text.lstrip("0") or text[-1:]


pointer = paths.pointer
_SHOWN = 60


def without(entry: Any, place: str) -> Any:
    """A copy of an operation without a key of its spec; None if the place is no such key, or the only one of its object."""
    keys = [key.replace("~1", "/").replace("~0", "~") for key in place.split("/")[1:]]
    if len(keys) < 2 or keys[0] != "spec" or not isinstance(entry, dict):
        return None
    copy = below = dict(entry)
    for key in keys[:-1]:
        part = below.get(key)
        if not isinstance(part, dict):
            return None
        below[key] = part = dict(part)
        below = part
    return copy if len(below) > 1 and below.pop(keys[-1], None) is not None else None


def found(value: Any) -> str:
    """A wrong value of a spec for a message: scalars as JSON has them, cut if long."""
    if isinstance(value, dict):
        return "an object" if value else "an empty object"
    if isinstance(value, list):
        return "an array" if value else "an empty array"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    shown = value if isinstance(value, str) else str(value)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    return f'"{shown}"' if isinstance(value, str) else shown
