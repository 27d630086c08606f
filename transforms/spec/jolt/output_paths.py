"""Dotted paths of the output: `shift`'s right side."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from idgraph.model.errors import SpecError
from transforms.spec.jolt.elements import parse_path
from transforms.spec.jolt.levels import Level, Text, Walk, key_text
from transforms.spec.jolt.numbers import parse_int
from transforms.spec.steps import WRITES_A_STEP

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
