"""The functions that walk and change a value the way a `modify-*` spec says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from model.errors import SpecError, TransformError
from transforms.jolt.elements import Array, Literal, parse_key
from transforms.jolt.levels import MISSING, Frame, FrameLayout, Level
from transforms.jolt.modify_values import Traits, alternatives, plain_function
from transforms.jolt.stars import Star, precedence
from transforms.jolt.text import split_or, text_of
from transforms.limits import SpecLimits
from transforms.pointers import pointer

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


class _Shape(Enum):
    """What the children of a key say its value must be."""

    OBJECT = dict
    ARRAY = list
    EITHER = object


@dataclass(slots=True)
class Reader:
    """Reads the spec of one operation."""

    mode: Mode
    limits: SpecLimits
    layout: FrameLayout = field(default_factory=FrameLayout)
    traits: Traits = field(default_factory=Traits)
    placed_slot: int = field(init=False)
    """Of the frame: whether an object or array was put anywhere."""

    def __post_init__(self) -> None:
        self.placed_slot = self.layout.slot()

    def read(self, spec: Any) -> tuple[Level, Visit]:
        """The level around the root (Jolt has two there), and what to do with the root. Raises SpecError."""
        if not isinstance(spec, dict):
            raise SpecError(f"the spec of modify must be an object, not {type(spec).__name__}")
        outer, root = Level(self.layout, "root"), Level(self.layout, "root")
        return outer, _inner(self._children(spec, [outer, root]), root, self.mode)

    def _children(self, spec: dict[str, Any], walk: list[Level]) -> _Children:
        children = _Children()
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
        children: _Children,
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
        level = Level(self.layout, name, element.groups if isinstance(element, Star) else 0)
        visit = self._visitor(right, level, mode, walk)
        quick = plain_function(right) if mode is Mode.OVERWRITE else None
        children.add(element, level, _Child(visit, only_present, quick))
        if children.last_index > self.limits.max_index:
            raise SpecError(f"an array index is above {self.limits.max_index}")

    def _visitor(self, right: Any, level: Level, mode: Mode, walk: list[Level]) -> Visit:
        below = [*walk, level]
        if isinstance(right, dict) and right:
            return _inner(self._children(right, below), level, mode)
        return _leaf(alternatives(right, below, self.traits), level, mode, self.placed_slot)


class _Child(NamedTuple):
    visit: Visit
    only_present: bool
    """Whether the key ended with `?`."""
    quick: Callable[[Any], Any] | None
    """The function, for a value that is always overwritten by a function of itself."""


@dataclass(slots=True)
class _Children:
    literals: dict[str, _Child] = field(default_factory=dict)
    indexes: dict[int, Visit] = field(default_factory=dict)
    computed: list[tuple[Star, Level, Visit]] = field(default_factory=list)
    last_index: int = -1
    only_objects: bool = False

    def add(self, element: Literal | Array | Star, level: Level, child: _Child) -> None:
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
    def shape(self) -> _Shape:
        if self.indexes:
            return _Shape.ARRAY
        return _Shape.OBJECT if self.literals or self.only_objects else _Shape.EITHER


def _if_present(visit: Visit) -> Visit:
    def visit_present(container: Any, key: Any, value: Any, size: int, frame: Frame) -> None:
        if value is not MISSING:
            visit(container, key, value, size, frame)

    return visit_present


def _leaf(evaluate: Callable[[Any, Frame], Any], level: Level, mode: Mode, placed_slot: int) -> Visit:
    tree_slot = level.tree_slot
    always = mode is Mode.OVERWRITE

    def visit(container: Any, key: Any, value: Any, size: int, frame: Frame) -> None:
        if tree_slot is not None:
            frame[tree_slot] = None if value is MISSING else value
        made = evaluate(value, frame)
        if made is MISSING:
            return
        if type(container) is not dict and type(container) is not list:
            raise TransformError("a scalar stands where the spec expects an object or array")
        if always or mode.allows(container, key, size):
            container[key] = made
            if type(made) is dict or type(made) is list:
                frame[placed_slot] = True

    return visit


def _inner(children: _Children, level: Level, mode: Mode) -> Visit:
    shape = children.shape
    expected = shape.value
    tree_slot = level.tree_slot
    visit_children = {
        _Shape.OBJECT: _object_visitor(children),
        _Shape.ARRAY: _array_visitor(children, mode),
        _Shape.EITHER: _either_visitor(children),
    }[shape]
    last_index = children.last_index

    def visit(container: Any, key: Any, value: Any, size: int, frame: Frame) -> None:
        if value is None or value is MISSING:
            if shape is _Shape.EITHER or (type(container) is not dict and type(container) is not list):
                return
            if not mode.allows(container, key, size):
                return
            value = container[key] = expected()
        elif shape is not _Shape.EITHER and type(value) is not expected:
            return
        own_size = len(value) if type(value) is list else 0
        if own_size <= last_index:
            value.extend([None] * (last_index + 1 - own_size))
        if tree_slot is not None:
            frame[tree_slot] = value
        visit_children(value, own_size, frame)

    if shape is _Shape.OBJECT and not children.computed:
        return _literal_visitor(children, tree_slot, visit)
    return visit


_VisitChildren: TypeAlias = Callable[[Any, int, Frame], None]


def _literal_visitor(children: _Children, tree_slot: int | None, other: Visit) -> Visit:
    """What most specs are made of, without a call for each level: objects with known keys."""
    literals = _literals(children)

    def visit(container: Any, key: Any, value: Any, size: int, frame: Frame) -> None:
        if type(value) is not dict:
            other(container, key, value, size, frame)
            return
        if tree_slot is not None:
            frame[tree_slot] = value
        for name, quick, child, only_present in literals:
            if name in value:
                if quick is None:
                    child(value, name, value[name], 0, frame)
                else:
                    made = quick(value[name])
                    if made is not MISSING:
                        value[name] = made
            elif not only_present:
                child(value, name, MISSING, 0, frame)

    return visit


def _literals(children: _Children) -> tuple[tuple[str, Callable[[Any], Any] | None, Visit, bool], ...]:
    # A function of a value gives none where there is no value.
    return tuple(
        (key, child.quick, child.visit, child.only_present or child.quick is not None)
        for key, child in children.literals.items()
    )


def _object_visitor(children: _Children) -> _VisitChildren:
    literals = _literals(children)
    visit_matching = _matching(children.computed)

    def visit(value: Any, _size: int, frame: Frame) -> None:
        for key, _quick, child, only_present in literals:
            below = value.get(key, MISSING)
            if below is not MISSING or not only_present:
                child(value, key, below, 0, frame)
        for key in list(value) if children.computed else ():
            visit_matching(value, key, value[key], 0, frame)

    return visit


def _array_visitor(children: _Children, mode: Mode) -> _VisitChildren:
    indexes = tuple(children.indexes.items())
    visit_matching = _matching(children.computed)
    # In the define mode an index that the spec names is not visited by the wildcard too.
    apart = mode is Mode.DEFINE and bool(children.computed)

    def visit(value: Any, size: int, frame: Frame) -> None:
        for index, child in indexes:
            if index < len(value) or not apart:
                child(value, index, _element(value, index, size), size, frame)
        if children.computed:
            for index in range(len(value)):
                if not (apart and index in children.indexes):
                    visit_matching(value, index, _element(value, index, size), size, frame)

    return visit


def _element(value: list[Any], index: int, size: int) -> Any:
    if index >= len(value):
        return MISSING
    found = value[index]
    return MISSING if found is None and index >= size else found


def _either_visitor(children: _Children) -> _VisitChildren:
    visit_matching = _matching(children.computed)

    def visit(value: Any, size: int, frame: Frame) -> None:
        if type(value) is dict:
            for key in list(value):
                visit_matching(value, key, value[key], 0, frame)
        elif type(value) is list:
            for index in range(len(value)):
                visit_matching(value, index, value[index], size, frame)
        else:
            visit_matching(value, text_of(value), MISSING, 0, frame)

    return visit


def _matching(computed: list[tuple[Star, Level, Visit]]) -> Visit:
    children = [(star, level.key_slot, level.groups_slot, visit) for star, level, visit in computed]

    def visit(container: Any, key: Any, value: Any, size: int, frame: Frame) -> None:
        text = key if type(key) is str else str(key)
        for star, key_slot, groups_slot, child in children:
            groups = star.match(text)
            if groups is not None:
                if key_slot is not None:
                    frame[key_slot] = text
                if groups_slot is not None:
                    frame[groups_slot] = groups
                child(container, key, value, size, frame)
                return

    return visit
