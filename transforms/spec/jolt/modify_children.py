"""The children of one key of a `modify-*` spec, and what they say of its value."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

from idgraph.model.errors import SpecError, TransformError
from transforms.spec.jolt.elements import Array, Literal
from transforms.spec.jolt.levels import Level
from transforms.spec.jolt.modify_values import Alternative
from transforms.spec.jolt.stars import Star

WALK_BROKEN = "the spec changes an object or array while it goes over it"


class Mode(Enum):
    """When a value is written, and the prefix that says so for one key."""

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
    """What the children of a key say its value must be."""

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
    """How many values the spec has there."""


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
