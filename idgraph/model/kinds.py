"""What a JSON value is, in words for people."""

from __future__ import annotations

from typing import Any

_NAMES = {dict: "an object", list: "an array", str: "text", bool: "true or false", type(None): "null"}


def kind(value: Any) -> str:
    """What a value of an event is, without showing it."""
    return _NAMES.get(type(value), "a number")
