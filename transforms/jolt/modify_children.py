"""The children of one key of a `modify-*` spec, and what they say of its value."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from model.errors import SpecError
from transforms.jolt.elements import Array, Literal
from transforms.jolt.levels import MISSING, Frame, Level
from transforms.jolt.stars import Star

Visit: TypeAlias = Callable[[Any, Any, Any, int, Frame], None]
"""Takes the container, the key, its value (MISSING if there is none), the container's size before this
operation made it longer, and the frame."""


class Mode(Enum):
    """When a value is written, and the prefix that says so for one key."""

    OVERWRITE = "+"
    DEFAULT = "~"
    DEFINE = "_"

    def allows(self, container: Any, key: Any, size: int) -> bool:
        """Whether this mode writes to the place; `container` is an object or array."""
        if self is Mode.OVERWRITE:
            return True
        if type(container) is dict:
            return container.get(key) is None if self is Mode.DEFAULT else key not in container
        return container[key] is None and (self is Mode.DEFAULT or key >= size)


class Shape(Enum):
    """What the children of a key say its value must be."""

    OBJECT = dict
    ARRAY = list
    EITHER = object


class Child(NamedTuple):
    visit: Visit
    only_present: bool
    """Whether the key ended with `?`."""
    quick: Callable[[Any], Any] | None
    """The function, for a value that is always overwritten by a function of itself."""


@dataclass(slots=True)
class Children:
    literals: dict[str, Child] = field(default_factory=dict)
    indexes: dict[int, Visit] = field(default_factory=dict)
    computed: list[tuple[Star, Level, Visit]] = field(default_factory=list)
    last_index: int = -1
    only_objects: bool = False

    def add(self, element: Literal | Array | Star, level: Level, child: Child) -> None:
        visit = _if_present(child.visit) if child.only_present else child.visit
        match element:
            case Literal(key):
                self.literals[key] = child
            case Array(int() as index):
                # `[01]` is a key that no index ever has.
                if element.text == str(index):
                    self.indexes[index] = visit
                if not child.only_present:
                    self.last_index = max(self.last_index, index)
            case Array():
                raise SpecError("only an explicit array index, like [0], can be modified")
            case Star():
                self.computed.append((element, level, visit))
                self.only_objects |= not element.matches_all
        if self.indexes and (self.literals or self.only_objects):
            raise SpecError("array indexes and object keys cannot be mixed at one level")

    @property
    def shape(self) -> Shape:
        if self.indexes:
            return Shape.ARRAY
        return Shape.OBJECT if self.literals or self.only_objects else Shape.EITHER


def _if_present(visit: Visit) -> Visit:
    def visit_present(container: Any, key: Any, value: Any, size: int, frame: Frame) -> None:
        if value is not MISSING:
            visit(container, key, value, size, frame)

    return visit_present
