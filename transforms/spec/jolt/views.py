"""The objects that `shift` sees in place of other values: an array by its indexes, a scalar by its text, with nothing
below."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final

from idgraph import native
from idgraph.model.errors import TransformError
from transforms.spec.budget import CHARACTERS_A_STEP, pay
from transforms.spec.jolt.scalars import parse_int, text_of, to_int
from transforms.spec.jolt.stars import Match


def items_walked(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The keys and values of an object. Raises TransformError if keys are added before the last one."""
    size = len(value)
    for key in list(value):
        if len(value) != size:
            raise TransformError("the spec adds keys to an object that it goes over")
        yield key, value[key]


def values_walked(value: dict[str, Any]) -> Collection[Any]:
    """The values of an object, as `items_walked` finds them."""
    return _Values(value)


class _Values(Collection[Any]):
    """A view whose size is known before it is walked."""

    def __init__(self, value: dict[str, Any]) -> None:
        self._value = value

    def __len__(self) -> int:
        return len(self._value)

    def __contains__(self, found: object) -> bool:
        return found in self._value.values()

    def __iter__(self) -> Iterator[Any]:
        return (found for _, found in items_walked(self._value))


def matches_walked(value: dict[str, Any], plan: list[Match]) -> Iterator[Match]:
    """Those keys of an object that a spec matches, as `items_walked` finds them."""
    matches = {match[0]: match for match in plan}
    return (matches[key] for key, _ in items_walked(value) if key in matches)


MISSING: Final = object()
"""Nothing there, as opposed to null."""
SMALL_INDEXES: Final = {str(index): index for index in range(64)}
_SURE_INDEX = 9
"""So many digits are an array index for certain."""


def key_of(value: Any) -> str | None:
    """A looked up value as a key, None if it is none."""
    kind = type(value)
    if kind is str:
        return value  # type: ignore[no-any-return]
    if kind is bool:
        return "true" if value else "false"
    if isinstance(value, int | float | Decimal):
        return str(to_int(value))
    return None


@native.reference("checked_index")
def checked_index(text: str | None) -> str | None:
    """The text if it is an array index, else None."""
    if text is None or text in SMALL_INDEXES:
        return text
    if len(text) <= _SURE_INDEX and text.isdigit() and text.isascii():
        return text
    index = parse_int(text)
    return text if index is not None and index >= 0 else None


def index_text(count: int) -> str:
    """A count as an array index."""
    return str(count)


def joined(parts: tuple[str, ...]) -> str:
    """One key out of several parts. Raises TransformError when an event makes too many long ones."""
    text = "".join(parts)
    if len(text) > CHARACTERS_A_STEP:
        pay(len(text) // CHARACTERS_A_STEP)
    return text


def step_to_key(found: Any, key: str | None) -> Any:
    """The value at a key of an object, else MISSING."""
    return found.get(key, MISSING) if type(found) is dict and key is not None else MISSING


def step_to_element(found: Any, text: str | None) -> Any:
    """The element of an array, else MISSING."""
    index = parse_int(text) if text is not None and type(found) is list else None
    return MISSING if index is None or index >= len(found) else found[index]


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

    return view


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


def values(value: Any) -> Sequence[Any]:
    """The values at all keys of a value, which is no object."""
    if value is None:
        return ()
    # A copy: the spec may append to the array that it walks, and would never come to its end.
    return value[:] if type(value) is list else (None,)
