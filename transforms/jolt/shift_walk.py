"""The functions that walk an event the way a `shift` spec says."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from model.errors import TransformError
from transforms.jolt.elements import Amp, Dollar, Hash
from transforms.jolt.levels import MISSING, Frame
from transforms.jolt.numbers import parse_int
from transforms.jolt.shift_spec import Node
from transforms.jolt.stars import Star
from transforms.jolt.text import text_of
from transforms.jolt.writers import OutputPath, Write

Visit: TypeAlias = Callable[[Any, Any, Frame], object]
"""Takes a value, the output and the frame. `False` means that there was nothing to visit."""
VisitKey: TypeAlias = Callable[[str, Any, Any, Frame], bool]
"""Takes a key, its value, the output and the frame; says whether the key was one for this node."""
WriterOf: TypeAlias = Callable[[OutputPath], Write]


def visitor(node: Node, writer_of: WriterOf) -> Visit:
    """What to do with a value whose key matched `node`."""
    return _leaf(node, writer_of) if node.is_leaf else _inner(node, writer_of)


def _leaf(node: Node, writer_of: WriterOf) -> Visit:
    writes = [writer_of(output) for output in node.outputs]
    only = writes[0] if len(writes) == 1 else None
    tree_slot, text, lookup = node.level.tree_slot, node.text, node.lookup
    own_key = node.level.key_slot if isinstance(node.element, Dollar) else None
    names = isinstance(node.element, Dollar | Hash)
    if only and tree_slot is None and not names and lookup is None:
        return only

    def visit(value: Any, out: Any, frame: Frame) -> None:
        data = value
        if names:
            data = text if type(text) is str else text(frame)  # type: ignore[operator,misc]
            if own_key is not None:
                frame[own_key] = data
        elif lookup is not None:
            data = lookup(frame)
            if data is MISSING:
                return
        if tree_slot is not None:
            frame[tree_slot] = value
        for write in writes:
            write(data, out, frame)

    return visit


def _inner(node: Node, writer_of: WriterOf) -> Visit:
    level = node.level
    tree_slot, lookup = level.tree_slot, node.lookup
    count_slot = level.owner.count_slot
    resets = count_slot is not None and level.alias is None
    specials = [(visitor(child, writer_of), not child.is_leaf) for child in node.specials]
    visit_object = _object_visitor(node, writer_of)
    visit_other = _other_visitor(node, writer_of)
    plain = tree_slot is None and count_slot is None and not specials and lookup is None

    def visit(value: Any, out: Any, frame: Frame) -> bool:
        if lookup is not None:
            value = lookup(frame)
            if value is MISSING:
                return False
        if tree_slot is not None:
            frame[tree_slot] = value
        if resets:
            frame[count_slot] = 0  # type: ignore[index]
        for special, counts in specials:
            if special(value, out, frame) is not False and counts and count_slot is not None:
                frame[count_slot] += 1
        if type(value) is dict:
            visit_object(value, out, frame)
        elif value is not None:
            visit_other(value, out, frame)
        return True

    def visit_plain(value: Any, out: Any, frame: Frame) -> None:
        if type(value) is dict:
            visit_object(value, out, frame)
        elif value is not None:
            visit_other(value, out, frame)

    return visit_plain if plain else visit


def _object_visitor(node: Node, writer_of: WriterOf) -> Visit:
    """Literal children in the order of the spec; wildcards in the order of the input."""
    literals = {key: visitor(child, writer_of) for key, child in node.literals.items()}
    computed = _computed_visitor(node.computed, writer_of)
    count_slot = node.level.owner.count_slot
    if computed is None:
        return _literal_visitor(literals.items(), count_slot)

    def visit_computed(value: Any, out: Any, frame: Frame) -> None:
        for key, below in value.items():
            if computed(key, below, out, frame) and count_slot is not None:
                frame[count_slot] += 1

    if not literals:
        return visit_computed

    def visit_each(value: Any, out: Any, frame: Frame) -> None:
        for key, below in value.items():
            literal = literals.get(key)
            if literal is None:
                matched = computed(key, below, out, frame)
            else:
                literal(below, out, frame)
                matched = True
            if matched and count_slot is not None:
                frame[count_slot] += 1

    if node.is_conflicted:
        return visit_each
    visit_literals = _literal_visitor(literals.items(), count_slot)

    def visit_both(value: Any, out: Any, frame: Frame) -> None:
        visit_literals(value, out, frame)
        visit_computed(value, out, frame)

    return visit_both


def _literal_visitor(literals: Iterable[tuple[str, Visit]], count_slot: int | None) -> Visit:
    children = tuple(literals)

    def visit(value: Any, out: Any, frame: Frame) -> None:
        for key, child in children:
            if key in value:
                child(value[key], out, frame)

    def visit_counting(value: Any, out: Any, frame: Frame) -> None:
        for key, child in children:
            if key in value:
                child(value[key], out, frame)
                frame[count_slot] += 1  # type: ignore[index]

    return visit if count_slot is None else visit_counting


def _other_visitor(node: Node, writer_of: WriterOf) -> Visit:
    """Arrays, whose keys are their indexes, and scalars, whose only key is their text."""
    literals = {key: visitor(child, writer_of) for key, child in node.literals.items()}
    indexes = [(parse_int(key), child) for key, child in literals.items()]
    by_index = [(index, child) for index, child in indexes if index is not None]
    computed = _computed_visitor(node.computed, writer_of)
    conflicted = node.is_conflicted
    count_slot = node.level.owner.count_slot

    def visit_key(key: str, value: Any, out: Any, frame: Frame) -> None:
        literal = literals.get(key)
        matched = literal is not None
        if literal is not None:
            literal(value, out, frame)
        elif computed is not None:
            matched = computed(key, value, out, frame)
        if matched and count_slot is not None:
            frame[count_slot] += 1

    def visit_list(value: list[Any], out: Any, frame: Frame) -> None:
        if conflicted:
            for index in range(len(value)):
                visit_key(str(index), value[index], out, frame)
            return
        for index, child in by_index:
            if index < len(value):
                if index < 0:
                    raise TransformError("a key of the spec is a negative array index")
                child(value[index], out, frame)
                if count_slot is not None:
                    frame[count_slot] += 1
        if computed is not None:
            for index in range(len(value)):
                if computed(str(index), value[index], out, frame) and count_slot is not None:
                    frame[count_slot] += 1

    def visit(value: Any, out: Any, frame: Frame) -> None:
        if type(value) is list:
            visit_list(value, out, frame)
        else:
            visit_key(text_of(value), None, out, frame)

    return visit


def _computed_visitor(nodes: list[Node], writer_of: WriterOf) -> VisitKey | None:
    """Tries the wildcards, the most specific first; the first that matches takes the key."""
    children = [_key_visitor(node, visitor(node, writer_of)) for node in nodes]
    if not children:
        return None
    if len(children) == 1:
        return children[0]

    def visit(key: str, value: Any, out: Any, frame: Frame) -> bool:
        return any(child(key, value, out, frame) for child in children)

    return visit


def _key_visitor(node: Node, visit: Visit) -> VisitKey:
    key_slot, groups_slot = node.level.key_slot, node.level.groups_slot
    element = node.element
    if isinstance(element, Star):
        match = element.match
        matches_all = element.matches_all

        def visit_star(key: str, value: Any, out: Any, frame: Frame) -> bool:
            if not matches_all:
                groups = match(key)
                if groups is None:
                    return False
                if groups_slot is not None:
                    frame[groups_slot] = groups
            if key_slot is not None:
                frame[key_slot] = key
            visit(value, out, frame)
            return True

        return visit_star
    text = node.text

    def visit_amp(key: str, value: Any, out: Any, frame: Frame) -> bool:
        if key != (text if type(text) is str else text(frame)):  # type: ignore[operator,misc]
            return False
        if key_slot is not None:
            frame[key_slot] = key
        visit(value, out, frame)
        return True

    def never(_key: str, _value: Any, _out: Any, _frame: Frame) -> bool:
        return False

    return visit_amp if isinstance(element, Amp) else never
