"""The functions that walk an event the way a `shift` spec says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from model.errors import TransformError
from transforms.jolt.elements import Amp, Dollar, Hash
from transforms.jolt.levels import MISSING, Frame
from transforms.jolt.numbers import parse_int
from transforms.jolt.shift_literals import Visit, literal_visitor
from transforms.jolt.shift_spec import Node
from transforms.jolt.stars import Star
from transforms.jolt.text import text_of
from transforms.jolt.writers import Writers

VisitKey: TypeAlias = Callable[[str, Any, Any, Frame], bool]
"""Takes a key, its value, the output and the frame; says whether the key was one for this node."""


def visitor(node: Node, writers: Writers) -> Visit:
    """What to do with a value whose key matched `node`."""
    return _leaf(node, writers) if node.is_leaf else _inner(node, writers)


def _leaf(node: Node, writers: Writers) -> Visit:
    writes = [writers.write(output) for output in node.outputs]
    only = writes[0] if len(writes) == 1 else None
    tree_slot, text, lookup = node.level.tree_slot, node.text, node.lookup
    own_key = node.level.key_slot if isinstance(node.element, Dollar) else None
    names = isinstance(node.element, Dollar | Hash)
    if only and tree_slot is None and lookup is None:
        if not names:
            return only
        if isinstance(text, str):
            return lambda _value, out, frame: only(text, out, frame)

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


def _inner(node: Node, writers: Writers) -> Visit:
    level = node.level
    tree_slot, lookup = level.tree_slot, node.lookup
    specials = tuple(visitor(child, writers) for child in node.specials)
    literals = {key: visitor(child, writers) for key, child in node.literals.items()}
    visit_below = _below_visitor(node, literals, writers)
    if level.owner.count_slot is not None:
        return _counting(node, specials, visit_below)
    if lookup is None and tree_slot is None:
        if not specials:
            return visit_below
        if len(specials) == 1 and not literals and not node.computed:
            return specials[0]
    # A scalar that chooses between branches is worth a short way.
    by_text = None if node.computed else literals

    def visit(value: Any, out: Any, frame: Frame) -> None:
        if tree_slot is not None:
            frame[tree_slot] = value
        for special in specials:
            special(value, out, frame)
        if type(value) is str and by_text is not None:
            chosen = by_text.get(value)
            if chosen is not None:
                chosen(None, out, frame)
        else:
            visit_below(value, out, frame)

    def visit_found(_value: Any, out: Any, frame: Frame) -> None:
        value = lookup(frame)
        if value is not MISSING:
            visit(value, out, frame)

    def visit_found_plain(_value: Any, out: Any, frame: Frame) -> None:
        value = lookup(frame)
        if value is not MISSING:
            visit_below(value, out, frame)

    if lookup is None:
        return visit
    return visit_found if specials or tree_slot is not None else visit_found_plain


def _counting(node: Node, specials: tuple[Visit, ...], visit_below: Visit) -> Visit:
    """For a node whose matches some `[#1]` counts."""
    level = node.level
    tree_slot, lookup = level.tree_slot, node.lookup
    count_slot = level.owner.count_slot
    resets = level.alias is None
    # Leaves among the specials are not counted, nor is a node whose value was not found.
    counted = [(child.lookup, not child.is_leaf) for child in node.specials]

    def visit(value: Any, out: Any, frame: Frame) -> None:
        if lookup is not None:
            value = lookup(frame)
            if value is MISSING:
                return
        if tree_slot is not None:
            frame[tree_slot] = value
        if resets:
            frame[count_slot] = 0  # type: ignore[index]
        for special, (finds, counts) in zip(specials, counted, strict=True):
            matches = counts and (finds is None or finds(frame) is not MISSING)
            special(value, out, frame)
            frame[count_slot] += matches  # type: ignore[index]
        visit_below(value, out, frame)

    return visit


def _below_visitor(node: Node, literals: dict[str, Visit], writers: Writers) -> Visit:
    """Visits what the literal and computed children match."""
    visit_other = _other_visitor(node, literals, writers)
    if not node.computed:
        return literal_visitor(node, literals, writers, visit_other)
    visit_object = _object_visitor(node, literals, writers)

    def visit(value: Any, out: Any, frame: Frame) -> None:
        if type(value) is dict:
            visit_object(value, out, frame)
        elif value is not None:
            visit_other(value, out, frame)

    return visit


def _object_visitor(node: Node, literals: dict[str, Visit], writers: Writers) -> Visit:
    """Literal children in the order of the spec; wildcards in the order of the input."""
    computed = _computed_visitor(node.computed, writers)
    count_slot = node.level.owner.count_slot
    if computed is None:
        raise ValueError("the node has no computed children")

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
    visit_literals = literal_visitor(node, literals, writers, visit_computed)

    def visit_both(value: Any, out: Any, frame: Frame) -> None:
        visit_literals(value, out, frame)
        visit_computed(value, out, frame)

    return visit_both


def _other_visitor(node: Node, literals: dict[str, Visit], writers: Writers) -> Visit:
    """Arrays, whose keys are their indexes, and scalars, whose only key is their text."""
    indexes = [(parse_int(key), child) for key, child in literals.items()]
    by_index = [(index, child) for index, child in indexes if index is not None]
    computed = _computed_visitor(node.computed, writers)
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
            visit_key(value if type(value) is str else text_of(value), None, out, frame)

    def visit_text(value: Any, out: Any, frame: Frame) -> None:
        if type(value) is str:
            literal = literals.get(value)
            if literal is not None:
                literal(None, out, frame)
        else:
            visit(value, out, frame)

    return visit_text if computed is None and count_slot is None else visit


def _computed_visitor(nodes: list[Node], writers: Writers) -> VisitKey | None:
    """Tries the wildcards, the most specific first; the first that matches takes the key."""
    children = [_key_visitor(node, visitor(node, writers)) for node in nodes]
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
