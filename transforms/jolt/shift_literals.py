"""The literal keys of a `shift` node: the part that nearly every event spends its time in.

Leaves with an exclusive path are written here instead of through a call each: what is left is a test, a
look-up and an assignment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from transforms.jolt.levels import Frame
from transforms.jolt.shift_spec import Node
from transforms.jolt.writers import Writers

Visit: TypeAlias = Callable[[Any, Any, Frame], object]
"""Takes a value, the output and the frame."""
_Entry: TypeAlias = "tuple[str, Visit | None, str, str]"
"""A key with what visits its value, or else the two keys that the value is written to."""


def literal_visitor(node: Node, literals: dict[str, Visit], writers: Writers, other: Visit) -> Visit:
    """Visits the keys of `literals` that an object has, in the order of the spec; gives any other value
    that is not null to `other`."""
    if not literals:
        return lambda value, out, frame: (
            None if value is None or type(value) is dict else other(value, out, frame)
        )
    count_slot = node.level.owner.count_slot
    if count_slot is not None:
        return _counting(literals, count_slot, other)
    paths = {key: _inlined(child, writers) for key, child in node.literals.items()}
    shared = {path[:-1] if path else None for path in paths.values()}
    parents = shared.pop() if len(shared) == 1 else None
    if parents:
        return _into_one_place([(key, path[-1]) for key, path in paths.items() if path], parents, other)
    return _mixed(
        [
            entry
            for key, child in node.literals.items()
            for entry in _entries(key, child, literals[key], writers)
        ],
        other,
    )


def _inlined(child: Node, writers: Writers) -> tuple[str, ...] | None:
    """The path to write to, if writing is all that this child does."""
    if not child.is_leaf or len(child.outputs) != 1 or child.level.tree_slot is not None:
        return None
    return writers.keys(child.outputs[0])


def _counting(literals: dict[str, Visit], count_slot: int, other: Visit) -> Visit:
    children = tuple(literals.items())

    def visit(value: Any, out: Any, frame: Frame) -> None:
        if type(value) is not dict:
            if value is not None:
                other(value, out, frame)
            return
        for key, child in children:
            if key in value:
                child(value[key], out, frame)
                frame[count_slot] += 1

    return visit


def _into_one_place(names: list[tuple[str, str]], parents: tuple[str, ...], other: Visit) -> Visit:
    """All leaves go into the same object."""
    entries = tuple(names)
    first, *deeper = parents

    def visit(value: Any, out: Any, frame: Frame) -> None:
        if type(value) is not dict:
            if value is not None:
                other(value, out, frame)
            return
        place: Any = None
        for key, name in entries:
            if key in value:
                if place is None:
                    place = out.get(first)
                    if place is None:
                        place = out[first] = {}
                    for parent in deeper:
                        below = place.get(parent)
                        if below is None:
                            below = place[parent] = {}
                        place = below
                place[name] = value[key]

    return visit


def _entries(key: str, child: Node, visit: Visit, writers: Writers) -> list[_Entry]:
    """One entry for each output of a leaf, if all can be written in the loop."""
    paths = [writers.keys(output) for output in child.outputs]
    pairs = [path for path in paths if path and len(path) == 2]
    if not pairs or len(pairs) < len(paths) or child.level.tree_slot is not None:
        return [(key, visit, "", "")]
    return [(key, None, parent, name) for parent, name in pairs]


def _mixed(entries_of_node: list[_Entry], other: Visit) -> Visit:
    entries = tuple(entries_of_node)

    def visit(value: Any, out: Any, frame: Frame) -> None:
        if type(value) is not dict:
            if value is not None:
                other(value, out, frame)
            return
        for key, child, parent, name in entries:
            if key in value:
                if child is not None:
                    child(value[key], out, frame)
                    continue
                place = out.get(parent)
                if place is None:
                    out[parent] = {name: value[key]}
                else:
                    place[name] = value[key]

    return visit
