"""Dotted paths of the output: `shift`'s right side."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, TypeAlias

from idgraph.model.errors import SpecError, TransformError
from transforms.spec.budget import WRITES_A_STEP
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import constant, name, new_list
from transforms.spec.jolt.elements import parse_path
from transforms.spec.jolt.levels import Level, Text, Walk, key_text
from transforms.spec.jolt.numbers import parse_int
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
    """How many values a part of a spec is; a long text or key counts as more than one."""
    if isinstance(right, str):
        return 1 + len(right) // _FILLING_CHARACTERS_A_VALUE
    below = right.values() if isinstance(right, dict) else right if isinstance(right, list) else ()
    keys = sum(map(len, right)) // _FILLING_CHARACTERS_A_VALUE if isinstance(right, dict) else 0
    return 1 + keys + sum(map(size_of, below))


_ROOT = "root"
_FEW_KEYS = 4
_CHARACTERS_A_VALUE = 64


class Kind(IntEnum):
    """Into what a step of a path writes."""

    KEY = 0
    INDEX = 1
    APPEND = 2


@dataclass(frozen=True, slots=True)
class OutputPath:
    """Where to write. The first step is the key that holds the whole output."""

    kinds: tuple[Kind, ...]
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
        """How many values a write stands for: more than one if the path is long, or a key that the spec has in it."""
        keys = len(self.kinds) - 1
        characters = sum(len(text) for text in self.texts if isinstance(text, str))
        return WRITES_A_STEP * (characters // _CHARACTERS_A_VALUE + (keys if keys > _FEW_KEYS else 0)) or 1


def output_path(path: str, walk: Walk, loops: tuple[Level, ...] | None) -> OutputPath:
    """Reads the right side of a `shift` key. Raises SpecError without a pointer."""
    elements = parse_path(path)
    kinds: list[Kind] = [Kind.KEY]
    texts: list[Text] = [_ROOT]
    for element in elements:
        canonical = element.canonical
        kind = Kind.KEY
        if canonical.startswith("[") and canonical.endswith("]"):
            kind = Kind.APPEND if canonical == "[]" else Kind.INDEX
        text = key_text(element, walk)
        if kind is Kind.INDEX and isinstance(text, str) and parse_int(text) is None:
            raise SpecError(f"'{canonical}' is no array index")
        kinds.append(kind)
        texts.append(text)
    return OutputPath(tuple(kinds), tuple(texts), loops)


def root_path(loops: tuple[Level, ...] | None) -> OutputPath:
    """The path of the whole output."""
    return OutputPath((Kind.KEY,), (_ROOT,), loops)
