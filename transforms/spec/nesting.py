"""The bound on how deeply the output of a spec is nested: parts of an event pass through a spec unchanged.

The depth of containers that the generated code made is known. Their values are nearly always scalars, or objects of
scalars: Python's collector does not track those, and says so in a few nanoseconds. The rest is walked.

A container that has others below it is always tracked. Values at its keys are looked at when they are written
(`watch`), and again at the end only if some were tracked.
"""

from __future__ import annotations

import ast
from collections.abc import Set
from gc import get_referents, is_tracked
from typing import Any

from idgraph.model.errors import TransformError
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import (
    NONE,
    Block,
    assign,
    call,
    constant,
    do,
    in_,
    is_not,
    method,
    name,
    when,
)
from transforms.spec.jolt.places import PathElement
from transforms.spec.limits import SpecLimits
from transforms.spec.operation import EmitContext

_MARGIN = 2
"""An object of scalars, or an array of the spec's constants, may stand below the deepest known container."""


def watch(code: Code, value: ast.expr) -> Block:
    """Notes that a value, which may be evaluated again, holds more than scalars."""
    return when(call(code.bind(is_tracked), value), [assign(_noted(code), constant(True))])


def _noted(code: Code) -> str:
    return code.variable("tracked", constant(False))


def bound_depth(flow: EmitContext, limits: SpecLimits, body: Block) -> None:
    """The code that raises TransformError where the value is nested too deeply. There must be no `Long` in it."""
    nesting = _NestingCode(flow.code, limits.max_depth)
    if flow.known is None or _height(flow.known) + _MARGIN > limits.max_depth:
        body.append(nesting.check(name(flow.value), 0))
    else:
        nesting.place(flow.known, flow.value, 0, body)


class _NestingCode:
    def __init__(self, code: Code, most: int) -> None:
        self._code = code
        self._most = most

    def check(self, part: ast.expr, above: int) -> ast.stmt:
        return do(call(self._code.bind(check_depth), part, constant(self._most), constant(above)))

    def place(self, place: PathElement, variable: str, above: int, body: Block) -> None:
        """Looks at a container below so many others; its variable is None where there is none."""
        part = name(variable)
        check = [self.check(part, above)]
        if place.is_list:
            found = call(self._code.bind(map), self._code.bind(is_tracked), part)
            body += when(is_not(part, NONE), when(in_(constant(True), found), check))
        elif not place.below:
            body += when(self._is_tracked(part), check)
        elif place.is_open:
            body += when(is_not(part, NONE), check)
        else:
            inner = self._keys(place.leaves - place.below.keys(), part, above + 1)
            watched = self._keys(place.watched - place.leaves - place.below.keys(), part, above + 1)
            if watched:
                inner += when(name(_noted(self._code)), watched)
            for below in place.below.values():
                self.place(below, below.variable, above + 1, inner)
            body += when(is_not(part, NONE), inner)

    def _keys(self, keys: Set[str], container: ast.expr, above: int) -> Block:
        body: Block = []
        for key in sorted(keys):
            found = method(container, "get", constant(key))
            body += when(self._is_tracked(found), [self.check(found, above)])
        return body

    def _is_tracked(self, part: ast.expr) -> ast.expr:
        return call(self._code.bind(is_tracked), part)


def _height(place: PathElement) -> int:
    height, level = 0, [place]
    while level:
        height += 1
        level = [below for each in level for below in each.below.values()]
    return height


def check_depth(part: Any, most: int, above: int) -> None:
    """Raise TransformError if a part that stands below `above` containers is nested too deeply. The collector's own
    function goes over a level faster than Python does over one value."""
    level = [part]
    for _ in range(most + 1 - above):
        # From Python 3.13 on a decimal refers to its type, and that to all there is.
        level = [each for each in get_referents(*level) if each.__class__ is not type]
        if not level:
            return
    raise TransformError(f"the output is nested deeper than {most} levels")
