"""The moves of an operation: the places that it reads, and the places to which it puts the values.

Each module of `transforms.spec.operations` states them, beside the code of its operation.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple, TypeAlias, cast

from transforms.spec.jolt.elements import Element, Literal, Transpose
from transforms.spec.jolt.stars import Star

Place: TypeAlias = "tuple[str | None, ...]"
"""Keys from the root, None for any key. It stands for all below it."""


class Item(NamedTuple):
    """An element of an array."""

    position: int | str


ANY_ITEM = Item("any")
APPENDED = Item("appended")
"""Nothing else is put at it."""
COLLECTED = Item("collected")
"""One of several values that were put at one place."""
_NOT_KNOWN = (ANY_ITEM, COLLECTED)


class Wildcard:
    """A key of a spec that takes several keys."""

    def __init__(self, element: Element, but: Container[str] = ()) -> None:
        self._element, self._but = element, but

    def takes(self, key: str) -> bool:
        is_other = isinstance(self._element, Star) and self._element.match(key) is None
        return not is_other and key not in self._but


Key: TypeAlias = "str | int | Item | Wildcard | None"
Keys: TypeAlias = "tuple[Key, ...]"
"""A number stands in targets only: the key at this index of the keys that were read."""


class SpecLine(NamedTuple):
    """A line of a spec. Two with the same content do the same with a value that comes the same way. One that `computes` does more
    than to move the value as it is, or by a function of it alone that says no more of it than its form."""

    place: str
    content: str
    computes: bool = False


class Move(NamedTuple):
    """A place that an operation reads, and the place to which it puts the value."""

    source: Keys
    target: Keys
    is_copy: bool
    """Whether all below the source stands below the target."""
    by: SpecLine
    is_repeated: bool = False
    """Whether it may put several values at one place."""
    inverse: Move | None = None

    @property
    def may_move_objects(self) -> bool:
        """Or else it makes texts and numbers only."""
        return self.is_copy or self.by.computes


class Test(NamedTuple):
    """A shift's look at a text: as the key that a pattern takes, or that a target gets (`is_key`)."""

    source: Keys
    by: SpecLine
    is_key: bool = False

    def tests(self, held: Keys) -> bool:
        """Whether it looks at a value that stands at a place it reads: that has no keys."""
        return self.is_key or len(self.source) > len(held)


@dataclass
class OperationMoves:
    """The moves and tests of an operation. One that replaces leaves nothing else of its input. One that `collects`
    makes an array of two values for one place. `value_keys` are the places that make a key of a value: JSON pointer,
    and the path above the key, as far as it is fixed. `written` are all places at which it may put something: a key that
    is not known is one of those that are there."""

    moves: list[Move]
    by: SpecLine
    replaces: bool = True
    removed: Sequence[Place] = ()
    tests: list[Test] = field(default_factory=list)
    collects: bool = False
    value_keys: list[tuple[str, str]] = field(default_factory=list)
    written: list[Keys] = field(default_factory=list)


def move(source: Keys, target: Keys, is_copy: bool, by: SpecLine, is_repeated: bool = False) -> Move:
    """A move with its inverse."""
    inverse = Move(target, _known(source, target), is_copy, by)
    return Move(source, _known(target, source), is_copy, by, is_repeated, inverse)


def _known(keys: Keys, within: Keys) -> Keys:
    """With the index in others, or None, for a wildcard."""
    return tuple(
        key if not isinstance(key, Wildcard) else within.index(key) if key in within else None for key in keys
    )


def read_by(element: Transpose, places: Sequence[Keys]) -> Keys:
    """The place that an `@` reads; `places` are those of the levels above it, the root first."""
    above = places[-1 - element.up] if element.up < len(places) else ()
    return above + tuple(each.key if isinstance(each, Literal) else None for each in element.path or ())


def item_at(index: object) -> Item:
    """The element at an index of a spec: None appends, and no number is any."""
    return APPENDED if index is None else Item(index) if isinstance(index, int) else ANY_ITEM


def value_place(place: Keys) -> Place:
    """Up to the first array, which is one value, but through those that may be."""
    keys = (key for key in place if key != COLLECTED)
    return cast("Place", tuple(takewhile(lambda key: not isinstance(key, Item), keys)))


def may_be(wanted: Key, key: Key) -> bool:
    """Whether two keys may be the same."""
    if isinstance(wanted, Wildcard):
        return not isinstance(key, str) or wanted.takes(key)
    if wanted is None or key is None or (isinstance(wanted, str) and isinstance(key, str)):
        return None in (wanted, key) or wanted == key
    if isinstance(wanted, str):
        wanted, key = key, wanted
    if isinstance(key, str):
        return key.isdecimal() and wanted in (*_NOT_KNOWN, APPENDED, Item(int(key)))
    if APPENDED in (wanted, key):
        return wanted != key
    return wanted == key or wanted in _NOT_KNOWN or key in _NOT_KNOWN


def if_known(key: Key) -> str | None:
    """A key of an object; None for any other."""
    return key if isinstance(key, str) else None


def covers(gone: Place, place: Keys) -> bool:
    """Whether a place is at or below one. A key of it that is not known may be another one, which is not covered."""
    pairs = zip(gone, place, strict=False)
    return len(gone) <= len(place) and all(each is None or each == key for each, key in pairs)
