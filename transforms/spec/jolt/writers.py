"""The right side of `shift`: dotted paths of the output, and writes to places that other writes may reach too.

A place that is empty or null takes the value; a second value turns it into a list; a list grows.

Values are not copied into the output, so a later write may reach into a container that belongs to the
event (`"user": "u"` and `"ts": "u.ts"`). Jolt changes its input then, and what it reads afterwards shows
it. Here the event must stay as it is: the writer raises `BorrowedError`, and the whole chain runs
again on a copy of the event that it may change. Most specs never need that.

`borrowed` holds the ids of the event's containers in the output; it is None when the event may be changed.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

from idgraph.model.errors import SpecError, TransformError
from transforms.spec.budget import WRITES_A_STEP
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import constant, name, new_list
from transforms.spec.jolt.elements import parse_path
from transforms.spec.jolt.levels import Level, Text, Walk, key_text
from transforms.spec.jolt.scalars import parse_int
from transforms.spec.jolt.views import SMALL_INDEXES
from transforms.spec.limits import SpecLimits

Room: TypeAlias = "list[int]"

_FILLING_CHARACTERS_A_VALUE = 64


def room_for(code: Code, limits: SpecLimits) -> ast.expr:
    """The room that all operations of a chain share."""
    return name(code.variable("room", new_list(constant(limits.max_nodes))))


def take(room: Room, values: int) -> None:
    """Raises TransformError if there is no room for so many values."""
    room[0] -= values
    if room[0] < 0:
        raise TransformError("the event makes the spec add too many values")


def fill(array: list[Any], index: int, room: Room) -> None:
    """Make an array so long that it has an element at `index`. Raises TransformError."""
    missing = index + 1 - len(array)
    if missing > 0:
        take(room, missing)
        array.extend([None] * missing)


def size_of(right: Any) -> int:
    """The number of values of a part of a spec; a long text or key counts as more than one."""
    if isinstance(right, str):
        return 1 + len(right) // _FILLING_CHARACTERS_A_VALUE
    below = right.values() if isinstance(right, dict) else right if isinstance(right, list) else ()
    keys = sum(map(len, right)) // _FILLING_CHARACTERS_A_VALUE if isinstance(right, dict) else 0
    return 1 + keys + sum(map(size_of, below))


_ROOT = "root"
_FEW_KEYS = 4
_CHARACTERS_A_VALUE = 64


class StepKind(IntEnum):
    """Into what a step of a path writes."""

    KEY = 0
    INDEX = 1
    APPEND = 2


@dataclass(frozen=True, slots=True)
class OutputPath:
    """The target of a write. The first step is the key that holds the whole output."""

    kinds: tuple[StepKind, ...]
    texts: tuple[Text, ...]
    loops: tuple[Level, ...] | None
    """The levels of the `*` it lies below: it is written once for each key that they match. None if that
    cannot be determined."""

    @property
    def once(self) -> bool:
        """Whether at most one value of an event is written through it."""
        return self.loops == ()

    @property
    def effort(self) -> int:
        """The number of values of a write: more than one if the path is long, or a key that the spec has in it."""
        keys = len(self.kinds) - 1
        characters = sum(len(text) for text in self.texts if isinstance(text, str))
        return WRITES_A_STEP * (characters // _CHARACTERS_A_VALUE + (keys if keys > _FEW_KEYS else 0)) or 1


def output_path(path: str, walk: Walk, loops: tuple[Level, ...] | None) -> OutputPath:
    """Reads the right side of a `shift` key. Raises SpecError without a pointer."""
    elements = parse_path(path)
    kinds: list[StepKind] = [StepKind.KEY]
    texts: list[Text] = [_ROOT]
    for element in elements:
        canonical = element.canonical
        kind = StepKind.KEY
        if canonical.startswith("[") and canonical.endswith("]"):
            kind = StepKind.APPEND if canonical == "[]" else StepKind.INDEX
        text = key_text(element, walk)
        if kind is StepKind.INDEX and isinstance(text, str) and parse_int(text) is None:
            raise SpecError(f"'{canonical}' is no array index")
        kinds.append(kind)
        texts.append(text)
    return OutputPath(tuple(kinds), tuple(texts), loops)


def root_path(loops: tuple[Level, ...] | None) -> OutputPath:
    """The path of the whole output."""
    return OutputPath((StepKind.KEY,), (_ROOT,), loops)


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
                _put(array, StepKind.INDEX, text, found, max_index, room)
        return found

    return find


def writer(kinds: Sequence[StepKind], max_index: int) -> Write:
    """The function that writes along a path of these kinds of steps."""
    *inner_kinds, last_kind = kinds
    # The container to make where a step finds nothing depends on the next step.
    makers = [dict if kind is StepKind.KEY else list for kind in kinds[1:]]
    inner = list(zip(inner_kinds, makers, strict=True))

    def write(value: Any, out: Any, borrowed: set[int] | None, keys: Sequence[str], room: Room) -> None:
        container = out
        step = 0
        for kind, make in inner:
            child = _get(container, kind, keys[step])
            if child is None:
                child = make()
                if not _put(container, kind, keys[step], child, max_index, room):
                    return
            elif borrowed and id(child) in borrowed:
                raise BorrowedError
            container = child
            step += 1
        present = _get(container, last_kind, keys[step])
        if present is None:
            _put(container, last_kind, keys[step], value, max_index, room)
        elif type(present) is list:
            if borrowed and id(present) in borrowed:
                raise BorrowedError
            present.append(value)
        else:
            _put(container, last_kind, keys[step], [present, value], max_index, room)
        if borrowed is not None and (type(value) is dict or type(value) is list):
            borrowed.add(id(value))

    return write


def _get(place: Any, kind: StepKind, key: str) -> Any:
    if kind is StepKind.KEY:
        return place.get(key) if type(place) is dict else None
    if kind is StepKind.APPEND or type(place) is not list:
        return None
    index = int(key)
    return place[index] if index < len(place) else None


def _put(place: Any, kind: StepKind, key: str, value: Any, max_index: int, room: Room) -> bool:
    """False if the place holds something that cannot take the value: Jolt drops the value then."""
    if kind is StepKind.KEY:
        if type(place) is not dict:
            return False
        place[key] = value
        return True
    if type(place) is not list:
        return False
    if kind is StepKind.APPEND:
        place.append(value)
        return True
    index = int(key)
    if index > max_index:
        raise TransformError(f"an array index is above {max_index}")
    fill(place, index, room)
    place[index] = value
    return True
