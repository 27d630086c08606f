"""A `modify-*` spec read into the functions that carry it out."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from model.errors import SpecError
from transforms.jolt.elements import Array, Literal, parse_key
from transforms.jolt.levels import FrameLayout, Level
from transforms.jolt.modify_children import Child, Children, Mode, Visit
from transforms.jolt.modify_values import Traits, alternatives, plain_function
from transforms.jolt.modify_walk import inner_visitor, leaf_visitor
from transforms.jolt.stars import Star, precedence
from transforms.jolt.text import split_or
from transforms.limits import SpecLimits
from transforms.pointers import found, pointer


@dataclass(slots=True)
class Reader:
    """Reads the spec of one operation."""

    mode: Mode
    limits: SpecLimits
    layout: FrameLayout = field(default_factory=FrameLayout)
    traits: Traits = field(default_factory=Traits)
    placed_slot: int = field(init=False)
    """Of the frame: whether an object or array that was looked up was put anywhere."""

    def __post_init__(self) -> None:
        self.placed_slot = self.layout.slot()

    def read(self, spec: Any) -> tuple[Level, Visit]:
        """The level around the root (Jolt has two there), and what to do with the root. Raises SpecError."""
        if not isinstance(spec, dict):
            raise SpecError(f"expected an object as the spec of modify, found {found(spec)}")
        outer, root = Level(self.layout, "root"), Level(self.layout, "root")
        return outer, inner_visitor(self._children(spec, [outer, root]), root, self.mode)

    def _children(self, spec: dict[str, Any], walk: list[Level]) -> Children:
        children = Children()
        seen: set[str] = set()
        for spelled, right in spec.items():
            try:
                for key in split_or(spelled):
                    self._child(children, seen, key, right, walk)
            except SpecError as error:
                raise error.under(pointer(spelled)) from None
        children.computed.sort(key=lambda pair: precedence(pair[0]))
        return children

    def _child(
        self,
        children: Children,
        seen: set[str],
        spelled: str,
        right: Any,
        walk: list[Level],
    ) -> None:
        if not spelled:
            raise SpecError("an empty key cannot be modified")
        key, mode = spelled, self.mode
        if key[0] in "+~_":
            key, mode = key[1:], Mode(key[0])
        only_present = len(spelled) > 1 and spelled[-1] == "?" and not key.endswith("\\?")
        element = parse_key(key[:-1] if only_present else key)
        if not isinstance(element, Literal | Array | Star):
            raise SpecError(f"'{element.canonical}' cannot be a key of modify")
        if element.canonical in seen:
            raise SpecError(f"the key '{spelled}' occurs twice at this level")
        seen.add(element.canonical)
        name = element.key if isinstance(element, Literal) else None
        if isinstance(element, Array):
            name = element.text
        level = Level(self.layout, name, element.groups if isinstance(element, Star) else 0)
        visit = self._visitor(right, level, mode, walk)
        quick = plain_function(right) if mode is Mode.OVERWRITE else None
        children.add(element, level, Child(visit, only_present, quick))
        if children.last_index > self.limits.max_index:
            raise SpecError(f"an array index is above {self.limits.max_index}")

    def _visitor(self, right: Any, level: Level, mode: Mode, walk: list[Level]) -> Visit:
        below = [*walk, level]
        if isinstance(right, dict) and right:
            return inner_visitor(self._children(right, below), level, mode)
        before = self.traits.lookups
        evaluate = alternatives(right, below, self.traits)
        return leaf_visitor(evaluate, level, mode, self.placed_slot if self.traits.lookups > before else None)
