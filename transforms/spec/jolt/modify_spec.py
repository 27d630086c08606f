"""A `modify-*` spec read into children: one for each key of its left side."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from idgraph.model.errors import SpecError
from transforms.spec.generation.code import Code
from transforms.spec.jolt.elements import Array, Literal, parse_key
from transforms.spec.jolt.filling import size_of
from transforms.spec.jolt.levels import Level
from transforms.spec.jolt.modify_children import Child, Children, Mode
from transforms.spec.jolt.modify_values import Traits, alternatives
from transforms.spec.jolt.stars import Star, precedence
from transforms.spec.jolt.text import split_or
from transforms.spec.limits import SpecLimits
from transforms.spec.pointers import found, pointer


@dataclass(slots=True)
class Reader:
    """Reads the spec of one operation."""

    mode: Mode
    limits: SpecLimits
    code: Code
    traits: Traits = field(default_factory=Traits)

    def read(self, spec: Any) -> tuple[Level, Child]:
        """The level around the root (Jolt has two there), and the root. Raises SpecError."""
        if not isinstance(spec, dict):
            raise SpecError(f"expected an object as the spec of modify, found {found(spec)}")
        outer, root = Level(self.code, "root"), Level(self.code, "root")
        children = self._children(spec, [outer, root])
        return outer, Child(Literal("root"), root, self.mode, only_present=False, below=children)

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
        # Beside a literal key there are no indexes: its parts are walked only in an object.
        walk[-1].is_object |= isinstance(element, Literal)
        level = Level(self.code, name, element.groups if isinstance(element, Star) else 0)
        # A wildcard may come to a key that was changed before.
        self.traits.reports_own_longs |= isinstance(element, Star)
        child = Child(element, level, mode, only_present)
        if isinstance(element, Star):
            child.size = size_of(right)
        self._read_right(child, right, [*walk, level])
        children.add(child)
        if children.last_index > self.limits.max_index:
            raise SpecError(f"an array index is above {self.limits.max_index}")

    def _read_right(self, child: Child, right: Any, walk: list[Level]) -> None:
        if isinstance(right, dict) and right:
            child.below = self._children(right, walk)
            return
        before = self.traits.placements
        child.alternatives = alternatives(right, walk, self.traits)
        child.places = self.traits.placements > before
