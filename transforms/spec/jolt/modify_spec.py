"""A `modify-*` spec read into children, one for each key of its left side, with the container that they require."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from idgraph.model.errors import SpecError, TransformError
from transforms.spec.generation.code import Code
from transforms.spec.jolt.elements import Array, Literal, parse_key
from transforms.spec.jolt.levels import Level
from transforms.spec.jolt.modify_values import Alternative, Traits, alternatives
from transforms.spec.jolt.scalars import split_or, text_of
from transforms.spec.jolt.stars import Star, precedence
from transforms.spec.jolt.views import MISSING
from transforms.spec.jolt.writers import Room, fill, size_of
from transforms.spec.limits import SpecLimits
from transforms.spec.pointers import found, pointer

WALK_BROKEN = "the spec changes an object or array while it goes over it"


class Mode(Enum):
    """The condition under which a value is written, and its prefix at one key."""

    OVERWRITE = "+"
    DEFAULT = "~"
    DEFINE = "_"

    def allows(self, container: Any, key: Any, size: int) -> bool:
        """Whether this mode writes to the place; `container` is an object or array, and `size` how long the
        array was before this operation made it longer. Raises TransformError if it is now too short."""
        if type(container) is dict:
            if self is Mode.OVERWRITE:
                return True
            return container.get(key) is None if self is Mode.DEFAULT else key not in container
        # In this order: a function may have made the array shorter, and only what grew is looked at.
        if self is Mode.DEFINE and key < size:
            return False
        if key >= len(container):
            raise TransformError(WALK_BROKEN)
        return self is Mode.OVERWRITE or container[key] is None


class ChildShape(Enum):
    """The container kind that the children of a key demand."""

    OBJECT = dict
    ARRAY = list
    EITHER = object


@dataclass(slots=True)
class Child:
    """One key. It has children of its own, or alternatives for its value."""

    element: Element
    level: Level
    mode: Mode
    only_present: bool
    """Whether the key ended with `?`."""
    below: Children | None = None
    alternatives: list[Alternative] = field(default_factory=list)
    places: bool = False
    """Whether it may put an object or array that was looked up."""
    size: int = 1
    """The number of values that the spec has there."""


Element: TypeAlias = "Literal | Array | Star"


@dataclass(slots=True)
class Children:
    literals: dict[str, Child] = field(default_factory=dict)
    indexes: dict[int, Child] = field(default_factory=dict)
    computed: list[tuple[Star, Child]] = field(default_factory=list)
    last_index: int = -1
    only_objects: bool = False

    def add(self, child: Child) -> None:
        """Raises SpecError for a key that cannot stand beside the others."""
        match child.element:
            case Literal(key):
                self.literals[key] = child
            case Array(int() as index):
                # `[01]` is a key that no index ever has.
                if child.element.text == str(index):
                    self.indexes[index] = child
                if not child.only_present:
                    self.last_index = max(self.last_index, index)
            case Array():
                raise SpecError("only an explicit array index, like [0], can be modified")
            case Star():
                self.computed.append((child.element, child))
                self.only_objects |= not child.element.matches_all
        if self.indexes and (self.literals or self.only_objects):
            raise SpecError("array indexes and object keys cannot be mixed at one level")

    @property
    def shape(self) -> ChildShape:
        if self.indexes:
            return ChildShape.ARRAY
        return ChildShape.OBJECT if self.literals or self.only_objects else ChildShape.EITHER


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
    """The element of an array before it was made longer, else MISSING."""
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
    """The `slots` of a value. An array that becomes shorter meanwhile gives only those that are left. Raises
    TransformError, as Java does, if keys of an object come or go before the last one."""
    size = len(over)
    for slot in over:
        if type(value) is list and slot[0] >= len(value):
            return
        if type(value) is dict and len(value) != size:
            raise TransformError(WALK_BROKEN)
        yield slot


def slot_value(value: Any, key: Any, size: int) -> Any:
    """The element at one of the `slots` of a value."""
    if type(value) is dict:
        return value[key]
    return element(value, key, size) if type(value) is list else MISSING


@dataclass(slots=True)
class SpecReader:
    """Reads the spec of one operation."""

    mode: Mode
    limits: SpecLimits
    code: Code
    traits: Traits = field(default_factory=Traits)

    def read(self, spec: Any) -> tuple[Level, Child]:
        """The level around the root (Jolt has two there), and the root. Raises SpecError."""
        if not isinstance(spec, dict):
            raise SpecError(f"expected an object as the spec of modify, found {found(spec)}")
        outer, root = Level(self.code, "root"), Level(self.code, "root")
        children = self._children(spec, [outer, root])
        return outer, Child(Literal("root"), root, self.mode, only_present=False, below=children)

    def _children(self, spec: dict[str, Any], walk: list[Level]) -> Children:
        children = Children()
        seen: set[str] = set()
        for spelled, right in spec.items():
            try:
                for key in split_or(spelled):
                    self._child(children, seen, key, right, walk)
            except SpecError as error:
                raise error.under(pointer(spelled)) from None
        children.computed.sort(key=lambda pair: precedence(pair[0]))
        return children

    def _child(
        self,
        children: Children,
        seen: set[str],
        spelled: str,
        right: Any,
        walk: list[Level],
    ) -> None:
        if not spelled:
            raise SpecError("an empty key cannot be modified")
        key, mode = spelled, self.mode
        if key[0] in "+~_":
            key, mode = key[1:], Mode(key[0])
        only_present = len(spelled) > 1 and spelled[-1] == "?" and not key.endswith("\\?")
        element = parse_key(key[:-1] if only_present else key)
        if not isinstance(element, Literal | Array | Star):
            raise SpecError(f"'{element.canonical}' cannot be a key of modify")
        if element.canonical in seen:
            raise SpecError(f"the key '{spelled}' occurs twice at this level")
        seen.add(element.canonical)
        name = element.key if isinstance(element, Literal) else None
        if isinstance(element, Array):
            name = element.text
        # Beside a literal key there are no indexes: its parts are walked only in an object.
        walk[-1].is_object |= isinstance(element, Literal)
        level = Level(self.code, name, element.groups if isinstance(element, Star) else 0)
        # A wildcard may come to a key that was changed before.
        self.traits.reports_own_longs |= isinstance(element, Star)
        child = Child(element, level, mode, only_present)
        if isinstance(element, Star):
            child.size = size_of(right)
        self._read_right(child, right, [*walk, level])
        children.add(child)
        if children.last_index > self.limits.max_index:
            raise SpecError(f"an array index is above {self.limits.max_index}")

    def _read_right(self, child: Child, right: Any, walk: list[Level]) -> None:
        if isinstance(right, dict) and right:
            child.below = self._children(right, walk)
            return
        before = self.traits.placements
        child.alternatives = alternatives(right, walk, self.traits)
        child.places = self.traits.placements > before
