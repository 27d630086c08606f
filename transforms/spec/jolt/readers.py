"""What generated code calls to look something up."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

from idgraph import native
from transforms.spec.budget import CHARACTERS_A_STEP, pay
from transforms.spec.jolt.numbers import parse_int, to_int

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
