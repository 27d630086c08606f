"""The functions that walk and change a value the way a `modify-*` spec says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from model.errors import TransformError
from transforms.jolt.levels import MISSING, Frame, Level
from transforms.jolt.modify_children import Children, Mode, Shape, Visit
from transforms.jolt.stars import Star
from transforms.jolt.text import text_of


def leaf_visitor(
    evaluate: Callable[[Any, Frame], Any], level: Level, mode: Mode, placed_slot: int | None
) -> Visit:
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
            if placed_slot is not None and (type(made) is dict or type(made) is list):
                frame[placed_slot] = True

    return visit


def inner_visitor(children: Children, level: Level, mode: Mode) -> Visit:
    shape = children.shape
    expected = shape.value
    tree_slot = level.tree_slot
    visit_children = {
        Shape.OBJECT: _object_visitor(children),
        Shape.ARRAY: _array_visitor(children, mode),
        Shape.EITHER: _either_visitor(children),
    }[shape]
    last_index = children.last_index

    def visit(container: Any, key: Any, value: Any, size: int, frame: Frame) -> None:
        if value is None or value is MISSING:
            if shape is Shape.EITHER or (type(container) is not dict and type(container) is not list):
                return
            if not mode.allows(container, key, size):
                return
            value = container[key] = expected()
        elif shape is not Shape.EITHER and type(value) is not expected:
            return
        own_size = len(value) if type(value) is list else 0
        if own_size <= last_index:
            value.extend([None] * (last_index + 1 - own_size))
        if tree_slot is not None:
            frame[tree_slot] = value
        visit_children(value, own_size, frame)

    if shape is Shape.OBJECT and not children.computed:
        return _literal_visitor(children, tree_slot, visit)
    return visit


_VisitChildren: TypeAlias = Callable[[Any, int, Frame], None]


def _literal_visitor(children: Children, tree_slot: int | None, other: Visit) -> Visit:
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


def _literals(children: Children) -> tuple[tuple[str, Callable[[Any], Any] | None, Visit, bool], ...]:
    # A function of a value gives none where there is no value.
    return tuple(
        (key, child.quick, child.visit, child.only_present or child.quick is not None)
        for key, child in children.literals.items()
    )


def _object_visitor(children: Children) -> _VisitChildren:
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


def _array_visitor(children: Children, mode: Mode) -> _VisitChildren:
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


def _either_visitor(children: Children) -> _VisitChildren:
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
