"""How `shift` sees what is no object: an array by its indexes, a scalar by its text, with nothing below."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from idgraph import native
from idgraph.model.errors import TransformError
from transforms.spec.jolt.readers import SMALL_INDEXES
from transforms.spec.jolt.text import text_of

_LONG_KEY = 128
NOTHING: Final[dict[str, Any]] = {}
"""Stands for null: it has no keys."""


def literal_view(keys: frozenset[str], indexes: dict[str, int]) -> Callable[[Any], dict[str, Any]]:
    """The function that gives those of `keys` that a value has, which is no object."""

    # To spell an integer takes the square of its digits; one with more bits than this is longer than any key.
    longest = 4 * max(map(len, keys), default=0) + 4

    def view(value: Any) -> dict[str, Any]:
        if value is None:
            return NOTHING
        if type(value) is not list:
            if type(value) is int and value.bit_length() > longest:
                return NOTHING
            text = text_of(value)
            return {text: None} if text in keys else NOTHING
        found: dict[str, Any] = {}
        for key, index in indexes.items():
            if index < len(value):
                if index < 0:
                    raise TransformError("a key of the spec is a negative array index")
                found[key] = value[index]
        return found

    return native.functions.viewer(view, keys, NOTHING) if native.functions else view


@native.reference("members")
def members(value: Any) -> dict[str, Any]:
    """All keys of a value, which is no object."""
    if value is None:
        return NOTHING
    if type(value) is not list:
        return {text_of(value): None}
    if len(value) <= len(SMALL_INDEXES):
        return dict(zip(SMALL_INDEXES, value, strict=False))
    return {str(index): element for index, element in enumerate(value)}


@native.reference("is_long_key")
def is_long_key(key: str) -> bool:
    """Whether to write a key often could make an output large."""
    return len(key) > _LONG_KEY


@native.reference("has_long_key")
def has_long_key(walked: dict[str, Any]) -> bool:
    """Whether a value has a key that `is_long_key`."""
    return bool(walked) and max(map(len, walked)) > _LONG_KEY


@native.reference("values")
def values(value: Any) -> Sequence[Any]:
    """The values at all keys of a value, which is no object."""
    if value is None:
        return ()
    # A copy: the spec may append to the array that it walks, and would never come to its end.
    return value[:] if type(value) is list else (None,)
