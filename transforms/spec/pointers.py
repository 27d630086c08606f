"""JSON pointers (RFC 6901) into a spec, what was found there, and hints for names that are almost right."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

_SHOWN = 60


def pointer(*keys: str | int) -> str:
    """Keys to pointer: `pointer("a/b", 0)` is `/a~1b/0`."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


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


def nearest(name: str, known: Iterable[str]) -> str | None:
    """`did you mean 'shift'?` if a known name is close, whatever its case, else None."""
    spelled = {each.lower(): each for each in known}
    close = get_close_matches(name.lower(), spelled, n=1, cutoff=0.6)
    return f"did you mean '{spelled[close[0]]}'?" if close else None


def found(value: Any) -> str:
    """What stands in a spec where something else was expected: scalars as JSON has them, cut if long."""
    if isinstance(value, dict):
        return "an object" if value else "an empty object"
    if isinstance(value, list):
        return "an array" if value else "an empty array"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    shown = value if isinstance(value, str) else str(value)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    return f'"{shown}"' if isinstance(value, str) else shown
