"""`shift`: says for each part of the input where it goes in a new output."""

from __future__ import annotations

import ast
from typing import Any

from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import (
    NONE,
    Block,
    assign,
    call,
    constant,
    do,
    either,
    is_,
    method,
    name,
    new_dict,
    when,
)
from transforms.spec.jolt.elements import At, Transpose
from transforms.spec.jolt.place_code import PlaceCode
from transforms.spec.jolt.places import WalkedPaths
from transforms.spec.jolt.shift_code import ShiftCode
from transforms.spec.jolt.shift_spec import Node, read_spec
from transforms.spec.jolt.views import joined
from transforms.spec.limits import SpecLimits, measure
from transforms.spec.operation import UNBOUNDED, EmitContext, Operation, PathTree


def compile_shift(spec: Any, limits: SpecLimits, code: Code) -> Operation:
    """Raises SpecError with a pointer into `spec`."""
    outer, root = read_spec(spec, code)
    leaves = list(root.leaves())
    outputs = [output for leaf in leaves for output in leaf.outputs]
    places = WalkedPaths(outputs, code)
    out = name(places.root.variable)

    def emit(flow: EmitContext, body: Block) -> None:
        if outer.tree is not None:
            body.append(assign(outer.tree, name(flow.value)))
        if outer.count is not None:
            body.append(assign(outer.count, constant(0)))
        body.append(assign(places.root.variable, new_dict()))
        place_code = PlaceCode(code, code.borrowed, limits)
        if code.uses(joined):
            body += flow.budgeted()
        shift = ShiftCode(code, places, place_code, limits)
        shift.node(root, name(flow.value), body)
        found = either(out, NONE) if places.keyed else method(out, "get", constant("root"))
        flow.replace(found, body)
        flow.known = places.root if places.keyed else None

        def measured() -> ast.expr:
            return call(code.bind(lambda value: measure(value, limits)), name(flow.value))

        if not places.all_exclusive:
            flow.borrows = True
            flow.reaches_below |= place_code.reaches_below
            # A value that is written into the input may hold it: such an output has no end.
            body += when(is_(name(code.borrowed), NONE), [do(measured())])
        if shift.long_keys:
            body += when(name(shift.long_keys), [do(measured())])

    return Operation(
        emit,
        builds=_new_containers(places) if places.keyed else None,
        copies=_copies(leaves),
    )


def _new_containers(places: WalkedPaths) -> PathTree:
    tree: PathTree = {}
    waiting = [(places.root, tree)]
    while waiting:
        place, found = waiting.pop()
        for key, below in place.below.items():
            waiting.append((below, found.setdefault(key, {})))
    return tree


def _copies(leaves: list[Node]) -> float:
    """Plain leaves take disjoint parts of the input; what `@` reads may be any part, again and again."""
    copies = 0.0
    widest = 1
    for leaf in leaves:
        if isinstance(leaf.element, At | Transpose):
            once = all(output.once for output in leaf.outputs)
            copies += len(leaf.outputs) if once else UNBOUNDED
        else:
            widest = max(widest, len(leaf.outputs))
    return copies + widest
