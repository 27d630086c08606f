"""Levels: where a spec has walked to in its input, and what can be looked up from there.

Jolt keeps a stack of matched keys and values while it walks. How deep the stack is at each place of a spec
is known when the spec is compiled, so a look-up becomes a slot of a flat list that is made for each event
(the *frame*), and only what some reference reads is ever stored there. Slot 0 belongs to the operation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final, TypeAlias

from model.errors import SpecError
from transforms.jolt.elements import Amp, Array, Dollar, Element, Literal, Reference, Transpose
from transforms.jolt.numbers import parse_int, to_int

Frame: TypeAlias = list[Any]
Text: TypeAlias = "str | Callable[[Frame], str | None]"
"""A key: known when compiled, or looked up; None when there is nothing to look up."""
Lookup: TypeAlias = Callable[[Frame], Any]

MISSING: Final = object()
"""Nothing there, as opposed to null."""


class FrameLayout:
    """Hands out the slots of one compiled operation's frame."""

    def __init__(self) -> None:
        self.size = 1

    def slot(self) -> int:
        self.size += 1
        return self.size - 1


class Level:
    """One level of the walk. Slots stay None until some reference needs them."""

    __slots__ = ("alias", "count_slot", "groups", "groups_slot", "key", "key_slot", "layout", "tree_slot")

    def __init__(
        self, layout: FrameLayout, key: str | None, groups: int = 0, alias: Level | None = None
    ) -> None:
        """`key` is None when it is known only at run time; `alias` is the level whose key and count this
        one shares (the values differ)."""
        self.layout = layout
        self.key = key
        self.groups = groups
        self.alias: Level | None = alias.owner if alias else None
        self.key_slot: int | None = None
        self.groups_slot: int | None = None
        self.tree_slot: int | None = None
        self.count_slot: int | None = None

    @property
    def owner(self) -> Level:
        """The level that holds key and count."""
        return self.alias or self

    def read_key(self, group: int) -> Text:
        """The matched key (group 0) or what one of its `*` stands for."""
        level = self.owner
        if group > level.groups:
            raise SpecError(f"there is no group {group}: the key it refers to has {level.groups} '*' groups")
        if group == 0:
            if level.key is not None:
                return level.key
            if level.key_slot is None:
                level.key_slot = self.layout.slot()
            slot = level.key_slot
            return lambda frame: frame[slot]
        if level.groups_slot is None:
            level.groups_slot = self.layout.slot()
        slot, index = level.groups_slot, group - 1
        return lambda frame: frame[slot][index]

    def need_tree(self) -> int:
        """The slot of the value at this level."""
        if self.tree_slot is None:
            self.tree_slot = self.layout.slot()
        return self.tree_slot

    def read_count(self) -> Lookup:
        """How many children matched here so far."""
        level = self.owner
        if level.count_slot is None:
            level.count_slot = self.layout.slot()
        slot = level.count_slot
        return lambda frame: frame[slot] or 0


Walk: TypeAlias = Sequence[Level]
"""All levels from the outermost to the one at hand."""


def level_above(walk: Walk, up: int) -> Level:
    """The level a reference means. Raises SpecError if there are not so many."""
    if up >= len(walk):
        raise SpecError(f"there are not {up} levels above this place, only {len(walk) - 1}")
    return walk[-1 - up]


def key_text(element: Element, walk: Walk) -> Text:
    """The key that a path element gives when seen from the end of `walk`."""
    match element:
        case Literal(key):
            return key
        case Amp(tokens):
            return _joined(
                [token if isinstance(token, str) else _referenced(token, walk) for token in tokens]
            )
        case Dollar(reference):
            return _referenced(reference, walk)
        case Transpose():
            return _transposed_text(element, walk)
        case Array():
            return _index_text(element, walk)
    raise SpecError(f"'{element.canonical}' cannot stand in a path")


def _referenced(reference: Reference, walk: Walk) -> Text:
    return level_above(walk, reference.up).read_key(reference.group)


def _joined(parts: list[Text]) -> Text:
    if all(isinstance(part, str) for part in parts):
        return "".join(part for part in parts if isinstance(part, str))
    if len(parts) == 1:
        return parts[0]
    return lambda frame: "".join([part if type(part) is str else part(frame) for part in parts])  # type: ignore[operator,misc]


def _transposed_text(element: Transpose, walk: Walk) -> Text:
    lookup = transposed(element, walk)

    def read(frame: Frame) -> str | None:
        value = lookup(frame)
        kind = type(value)
        if kind is str:
            return value  # type: ignore[no-any-return]
        if kind is bool:
            return "true" if value else "false"
        if isinstance(value, int | float | Decimal):
            return str(to_int(value))
        return None

    return read


def _index_text(element: Array, walk: Walk) -> Text:
    match element.index:
        case None:
            return "[]"
        case int():
            return element.text
        case Reference():
            return _as_index(_referenced(element.index, walk))
        case Transpose():
            return _as_index(_transposed_text(element.index, walk))
        case hash_:
            count = level_above(walk, int(hash_.text)).read_count()
            return lambda frame: str(count(frame))


def _as_index(text: Text) -> Text:
    def checked(key: str | None) -> str | None:
        index = parse_int(key) if key is not None else None
        return key if index is not None and index >= 0 else None

    if isinstance(text, str):
        fixed = checked(text)
        return fixed if fixed is not None else _nothing
    return lambda frame: checked(text(frame))


def _nothing(_frame: Frame) -> None:
    return None


def transposed(element: Transpose, walk: Walk) -> Lookup:
    """The value that `@(up,path)` finds, MISSING if there is none."""
    slot = level_above(walk, element.up).need_tree()
    if element.path is None:
        return lambda frame: frame[slot]
    return path_lookup(slot, element.path, walk)


def path_lookup(slot: int, path: Sequence[Element], walk: Walk) -> Lookup:
    """The value found down `path` from what is in a slot, MISSING if there is none."""
    steps = [(part.canonical.startswith("["), key_text(part, walk)) for part in path]
    if len(steps) == 1 and isinstance(steps[0][1], str) and not steps[0][0]:
        key = steps[0][1]

        def read_key(frame: Frame) -> Any:
            found = frame[slot]
            return found.get(key, MISSING) if type(found) is dict else MISSING

        return read_key

    def read(frame: Frame) -> Any:
        found = frame[slot]
        for is_index, text in steps:
            key = text if type(text) is str else text(frame)  # type: ignore[operator]
            if is_index:
                index = parse_int(key) if key is not None and type(found) is list else None
                if index is None or index >= len(found):
                    return MISSING
                found = found[index]
            elif type(found) is dict and key is not None:
                found = found.get(key, MISSING)
            else:
                return MISSING
        return found

    return read
