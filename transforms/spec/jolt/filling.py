"""Nulls that fill an array up to an index: one number of a spec may stand for thousands of values.

The room for them is a list with one number, how many values may still be added. Each event starts with a new one.
"""

from __future__ import annotations

import ast
from typing import Any, TypeAlias

from idgraph.model.errors import TransformError
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import constant, name, new_list
from transforms.spec.limits import SpecLimits

Room: TypeAlias = "list[int]"

_CHARACTERS_A_VALUE = 64


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
    """How many values a part of a spec is; a long text or key counts as more than one."""
    if isinstance(right, str):
        return 1 + len(right) // _CHARACTERS_A_VALUE
    below = right.values() if isinstance(right, dict) else right if isinstance(right, list) else ()
    keys = sum(map(len, right)) // _CHARACTERS_A_VALUE if isinstance(right, dict) else 0
    return 1 + keys + sum(map(size_of, below))
