"""The code of `modify-*` for array indexes and for keys with `*`."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from model.errors import SpecError
from transforms.generation.nodes import (
    NONE,
    Block,
    assign,
    call,
    constant,
    is_,
    is_not,
    less,
    loop,
    name,
    not_in,
    when,
)
from transforms.jolt.modify_children import Child, Children, Mode, Shape
from transforms.jolt.modify_growth import element, slot_value, slots
from transforms.jolt.modify_spots import Spot
from transforms.steps import count_steps

if TYPE_CHECKING:
    from transforms.jolt.modify_code import ModifyCode

_MAX_LOOPS = 16
"""Python bounds how deeply loops may be nested."""


class ModifyLoops:
    """Makes the loops of one operation."""

    def __init__(self, modify: ModifyCode, max_steps: int) -> None:
        self._modify = modify
        self._max_steps = max_steps
        self._depth = 0

    def others(self, parent: Child, below: Children, value: str, size: str, body: Block) -> None:
        """The children that are no literal keys. `size` is the variable of an array's former size."""
        code = self._modify.code
        former: ast.expr = name(size) if size else call(code.bind(len), name(value))
        if below.shape is Shape.EITHER and below.computed and not size:
            size = code.fresh("n")
            is_list = is_(call(code.bind(type), name(value)), code.bind(list))
            count = assign(size, call(code.bind(len), name(value)))
            body += [assign(size, constant(0)), *when(is_list, [count])]
            former = name(size)
        # In the define mode an index that the spec names is not visited by the wildcard too.
        apart = parent.mode is Mode.DEFINE and bool(below.computed) and below.shape is Shape.ARRAY
        for index, child in below.indexes.items():
            self._index(child, value, index, former, apart, body)
        if below.computed:
            taken = frozenset(below.indexes) if apart else frozenset()
            self._wildcards(below, value, former, taken, body)

    def _index(self, child: Child, value: str, index: int, size: ast.expr, apart: bool, body: Block) -> None:
        code = self._modify.code
        found = code.fresh("v")
        spot = Spot(value, constant(index), size, is_object=False)
        visit: Block = [assign(found, call(code.bind(element), name(value), constant(index), size))]
        self._modify.visit(child, spot, found, visit)
        is_there = less(constant(index), call(code.bind(len), name(value)))
        body += when(is_there, visit) if apart else visit

    def _wildcards(
        self, below: Children, value: str, size: ast.expr, taken: frozenset[int], body: Block
    ) -> None:
        if self._depth == _MAX_LOOPS:
            raise SpecError(f"more than {_MAX_LOOPS} keys with '*' inside one another")
        code = self._modify.code
        over, key, text, found = (code.fresh(letter) for letter in "dkkv")
        body.append(assign(over, call(code.bind(slots), name(value))))
        count_steps(code, name(over), self._max_steps, body)
        spot = Spot(value, name(key), size, is_object=below.shape is Shape.OBJECT)
        self._depth += 1
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
        self._depth -= 1
        visit += after
        if taken:
            visit = when(not_in(name(key), code.bind(taken)), visit)
        body += loop([key, text], name(over), visit)
