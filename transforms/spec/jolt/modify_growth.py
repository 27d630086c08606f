"""What the code of `modify-*` calls where a value is missing, too short, or of a wrong kind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from idgraph.model.errors import TransformError
from transforms.spec.jolt.filling import Room, fill
from transforms.spec.jolt.modify_children import WALK_BROKEN, Mode
from transforms.spec.jolt.readers import MISSING
from transforms.spec.jolt.text import text_of


def grower(mode: Mode, kind: type) -> Callable[[Any, Any, Any, int], Any]:
    """The function that makes an object or array where there is none, if the mode allows it."""

    def grow(container: Any, key: Any, value: Any, size: int) -> Any:
        if type(container) is not dict and type(container) is not list:
            return value
        if not mode.allows(container, key, size):
            return value
        container[key] = made = kind()
        return made

    return grow


def check_container(container: Any) -> None:
    """Raises TransformError unless something can be written into `container`."""
    if type(container) is not list and type(container) is not dict:
        raise TransformError("a scalar stands where the spec expects an object or array")


def lengthen(value: Any, last_index: int, room: Room) -> int:
    """Fills an array with nulls up to an index; gives how long it was. Raises TransformError."""
    size = len(value) if type(value) is list else 0
    fill(value, last_index, room)
    return size


def element(value: list[Any], index: int, size: int) -> Any:
    """What an array had at an index before it was made longer, else MISSING."""
    if index >= len(value):
        return MISSING
    found = value[index]
    return MISSING if found is None and index >= size else found


def slots(value: Any) -> list[tuple[Any, str]]:
    """The keys of any value, each with its text."""
    if type(value) is dict:
        return [(key, key) for key in value]
    if type(value) is list:
        return [(index, str(index)) for index in range(len(value))]
    text = text_of(value)
    return [(text, text)]


def walked(value: Any, over: list[tuple[Any, str]]) -> Iterator[tuple[Any, str]]:
    """The `slots` of a value. Of an array that becomes shorter meanwhile only those that are left; raises TransformError
    if keys of an object come or go before the last one: so does Java."""
    size = len(over)
    for slot in over:
        if type(value) is list and slot[0] >= len(value):
            return
        if type(value) is dict and len(value) != size:
            raise TransformError(WALK_BROKEN)
        yield slot


def slot_value(value: Any, key: Any, size: int) -> Any:
    """What is at one of the `slots` of a value."""
    if type(value) is dict:
        return value[key]
    return element(value, key, size) if type(value) is list else MISSING
