"""Writing a value to a place of the output that other writes may reach too: `shift`'s right side.

A place that is empty or null takes the value; a second value turns it into a list; a list grows.

Values are not copied into the output, so a later write may reach into a container that belongs to the
event (`"user": "u"` and `"ts": "u.ts"`). Jolt changes its input then, and what it reads afterwards shows
it. Here the event must stay as it is: the writer raises `BorrowedError`, and the whole chain runs
again on a copy of the event that it may change. Most specs never come to that.

`borrowed` holds the ids of the event's containers in the output; it is None when the event may be changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from idgraph import native
from idgraph.model.errors import TransformError
from transforms.spec.jolt.output_paths import Kind, Room, fill
from transforms.spec.jolt.views import SMALL_INDEXES

Write: TypeAlias = Callable[[Any, Any, "set[int] | None", Sequence[str], Room], object]
"""Takes the value, the container to start from, what is borrowed, the keys of the path, and the room for nulls."""


class BorrowedError(Exception):
    """A write would change a container that belongs to the event."""


def put(place: dict[str, Any], key: str, value: Any, borrowed: set[int] | None) -> None:
    """Write to a key of an object that belongs to the output."""
    present = place.get(key)
    if present is None:
        place[key] = value
    elif type(present) is not list:
        place[key] = [present, value]
    elif borrowed and id(present) in borrowed:
        raise BorrowedError
    else:
        present.append(value)
    kind = type(value)
    if (kind is dict or kind is list) and borrowed is not None:
        borrowed.add(id(value))


def put_again(
    place: dict[str, Any], key: str, value: Any, array: list[Any] | None, borrowed: set[int] | None
) -> list[Any] | None:
    """Write to a key that has a value, and that no other path reaches. `array` is what this made of an
    earlier second value; gives what it is now."""
    present = place[key]
    if type(present) is not list:
        place[key] = array = [present, value]
    elif present is not array and borrowed is not None:
        raise BorrowedError
    else:
        present.append(value)
    return array


def element_finder(max_index: int) -> Callable[[list[Any], str, Room], dict[str, Any]]:
    """The function that finds or makes an object in an array that holds only such."""

    def find(array: list[Any], text: str, room: Room) -> dict[str, Any]:
        index, size = SMALL_INDEXES.get(text), len(array)
        if index is None:
            index = int(text)
        found: dict[str, Any] | None = array[index] if index < size else None
        if found is None:
            found = {}
            if index == size and index <= max_index:
                array.append(found)
            else:
                _put(array, Kind.INDEX, text, found, max_index, room)
        return found

    return native.functions.finder(find, min(max_index, 2**31 - 1)) if native.functions else find


def writer(kinds: Sequence[Kind], max_index: int) -> Write:
    """The function that writes along a path of these kinds of steps."""
    *inner_kinds, last_kind = kinds
    # What is made where a step finds nothing depends on what the next step writes into.
    makers = [dict if kind is Kind.KEY else list for kind in kinds[1:]]
    inner = list(zip(inner_kinds, makers, strict=True))

    def write(value: Any, out: Any, borrowed: set[int] | None, keys: Sequence[str], room: Room) -> None:
        place = out
        step = 0
        for kind, make in inner:
            found = _get(place, kind, keys[step])
            if found is None:
                found = make()
                if not _put(place, kind, keys[step], found, max_index, room):
                    return
            elif borrowed and id(found) in borrowed:
                raise BorrowedError
            place = found
            step += 1
        present = _get(place, last_kind, keys[step])
        if present is None:
            _put(place, last_kind, keys[step], value, max_index, room)
        elif type(present) is list:
            if borrowed and id(present) in borrowed:
                raise BorrowedError
            present.append(value)
        else:
            _put(place, last_kind, keys[step], [present, value], max_index, room)
        if borrowed is not None and (type(value) is dict or type(value) is list):
            borrowed.add(id(value))

    return write


def _get(place: Any, kind: Kind, key: str) -> Any:
    if kind is Kind.KEY:
        return place.get(key) if type(place) is dict else None
    if kind is Kind.APPEND or type(place) is not list:
        return None
    index = int(key)
    return place[index] if index < len(place) else None


def _put(place: Any, kind: Kind, key: str, value: Any, max_index: int, room: Room) -> bool:
    """False if the place holds something that cannot take the value: Jolt drops the value then."""
    if kind is Kind.KEY:
        if type(place) is not dict:
            return False
        place[key] = value
        return True
    if type(place) is not list:
        return False
    if kind is Kind.APPEND:
        place.append(value)
        return True
    index = int(key)
    if index > max_index:
        raise TransformError(f"an array index is above {max_index}")
    fill(place, index, room)
    place[index] = value
    return True
