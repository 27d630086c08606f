"""Dotted paths of the output: `shift`'s right side."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from model.errors import SpecError
from transforms.jolt.elements import parse_path
from transforms.jolt.levels import Text, Walk, key_text
from transforms.jolt.numbers import parse_int

_ROOT = "root"


class Kind(IntEnum):
    """Into what a step of a path writes."""

    KEY = 0
    INDEX = 1
    APPEND = 2


@dataclass(frozen=True, slots=True)
class OutputPath:
    """Where to write. The first step is the key that holds the whole output.

    `once` says that at most one value of an event is written through it.
    """

    kinds: tuple[Kind, ...]
    texts: tuple[Text, ...]
    once: bool

    def may_meet(self, other: OutputPath) -> bool:
        """Whether a place of one can be, or lie below or above, a place of the other."""
        for kind, text, other_kind, other_text in zip(
            self.kinds, self.texts, other.kinds, other.texts, strict=False
        ):
            if kind is not other_kind:
                return True
            if kind is not Kind.APPEND and text != other_text and {type(text), type(other_text)} == {str}:
                return False
        return True

    def without_root(self) -> OutputPath:
        return OutputPath(self.kinds[1:], self.texts[1:], self.once)

    @property
    def fixed_keys(self) -> tuple[str, ...] | None:
        """The keys, if the path is made of known keys only."""
        keys = tuple(text for text in self.texts if isinstance(text, str))
        only_keys = all(kind is Kind.KEY for kind in self.kinds)
        return keys if only_keys and len(keys) == len(self.texts) else None


def output_path(path: str, walk: Walk, once: bool) -> OutputPath:
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
    return OutputPath(tuple(kinds), tuple(texts), once)


def root_path(once: bool) -> OutputPath:
    """The path of the whole output."""
    return OutputPath((Kind.KEY,), (_ROOT,), once)
