"""The code of `modify-*` for array indexes and for keys with `*`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from idgraph.model.errors import SpecError
from transforms.spec.budget import budgeted, count_steps
from transforms.spec.generation.nodes import (
    NONE,
    Block,
    assign,
    call,
    constant,
    equals,
    is_,
    is_not,
    loop,
    name,
    when,
)
from transforms.spec.jolt.modify_children import Child, Children, ChildShape, Mode
from transforms.spec.jolt.modify_spec import element, slot_value, slots, walked
from transforms.spec.jolt.modify_spots import Spot
from transforms.spec.jolt.stars import effort
from transforms.spec.limits import SpecLimits

if TYPE_CHECKING:
    from transforms.spec.jolt.modify_code import ModifyCode

_MAX_LOOPS = 16
"""Python bounds how deeply loops may be nested."""


class ModifyLoops:
    """Makes the loops of one operation."""

    def __init__(self, modify: ModifyCode, limits: SpecLimits, moves: bool) -> None:
        self._modify = modify
        self._limits = limits
        self._moves = moves
        self.depth = 0

    def others(self, parent: Child, below: Children, value: str, size: str, body: Block) -> None:
        """The children that are no literal keys. `size` is the variable of an array's former size."""
        code = self._modify.code
        former: ast.expr = name(size) if size else call(code.bind(len), name(value))
        if below.shape is ChildShape.EITHER and below.computed and not size:
            size = code.fresh("n")
            is_list = is_(call(code.bind(type), name(value)), code.bind(list))
            count = assign(size, call(code.bind(len), name(value)))
            body += [assign(size, constant(0)), *when(is_list, [count])]
            former = name(size)
        # In the define mode an index that the spec names is visited in its turn, and by the wildcard not.
        if parent.mode is Mode.DEFINE and below.computed and below.shape is ChildShape.ARRAY:
            self._wildcards(below, value, former, below.indexes, body)
            return
        for index, child in below.indexes.items():
            self._index(child, value, index, former, body)
        if below.computed:
            self._wildcards(below, value, former, {}, body)

    def _index(self, child: Child, value: str, index: int, size: ast.expr, body: Block) -> None:
        code = self._modify.code
        found = code.fresh("v")
        spot = Spot(value, constant(index), size, is_object=False)
        body.append(assign(found, call(code.bind(element), name(value), constant(index), size)))
        self._modify.visit(child, spot, found, body)

    def _wildcards(
        self, below: Children, value: str, size: ast.expr, apart: dict[int, Child], body: Block
    ) -> None:
        if self.depth == _MAX_LOOPS:
            raise SpecError(f"more than {_MAX_LOOPS} keys with '*' inside one another")
        code = self._modify.code
        over, key, text, found = (code.fresh(dead_letter) for dead_letter in "dkkv")
        body += budgeted(code, self._limits)
        body.append(assign(over, call(code.bind(slots), name(value))))
        written = max(child.size for _, child in below.computed) + effort(star for star, _ in below.computed)
        count_steps(code, name(over), self._limits.max_steps, body, written)
        spot = Spot(value, name(key), size, is_object=below.shape is ChildShape.OBJECT)
        self.depth += 1
        visit: Block = [assign(found, call(code.bind(slot_value), name(value), name(key), size))]
        after: Block = []
        for star, child in reversed(below.computed):
            groups = child.level.group_texts or code.fresh("g")
            matched: Block = []
            if child.level.matched is not None:
                matched.append(assign(child.level.matched, name(text)))
            self._modify.visit(child, spot, found, matched)
            test = when(is_not(name(groups), NONE), matched, after)
            after = [assign(groups, call(code.bind(star.match), name(text))), *test]
        visit += after
        for index, child in apart.items():
            named: Block = []
            self._index(child, value, index, size, named)
            visit = when(equals(name(key), constant(index)), named, visit)
        self.depth -= 1
        slot: ast.expr = name(over)
        if self._moves:
            slot = call(code.bind(walked), name(value), slot)
        body += loop([key, text], slot, visit)
