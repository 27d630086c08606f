"""Which variables of a function only count down: the machine keeps those as numbers of its own."""

from __future__ import annotations

import ast
from typing import Any

from transforms.spec.generation import nodes

_FEWEST = 3


def keys_asked_for(everything: nodes.ByKind) -> dict[str, tuple[str, ...]]:
    """For each variable whose object is only read the constant keys that it is asked for, if there are several."""
    found: dict[str, dict[str, None]] = {}
    changed: set[str] = set()
    for node in everything.get(nodes.Compare, ()):
        if type(node.ops[0]) is ast.In:
            _note(node.comparators[0], node.left, found)
    for node in everything.get(nodes.Call, ()):
        if isinstance(node.func, nodes.Attribute) and node.func.attr == "get":
            _note(node.func.value, node.args[0], found)
    for node in (*everything.get(nodes.Assign, ()), *everything.get(nodes.Delete, ())):
        for target in node.targets:
            if isinstance(target, nodes.Subscript) and isinstance(target.value, nodes.Name):
                changed.add(target.value.id)
    return {name: tuple(keys) for name, keys in found.items() if len(keys) >= _FEWEST and name not in changed}


def _note(owner: ast.expr, key: ast.expr, found: dict[str, dict[str, None]]) -> None:
    if isinstance(owner, nodes.Name) and isinstance(key, nodes.Constant) and type(key.value) is str:
        found.setdefault(owner.id, {})[key.value] = None


MOST = 2**31 - 1


def counters_of(
    function: nodes.FunctionDef, everything: nodes.ByKind, bound: dict[str, Any]
) -> frozenset[str]:
    """The variables that are only set to small integers, or made less by lengths."""
    found: dict[str, bool] = {argument.arg: False for argument in function.args.args}
    for node in everything.get(nodes.Assign, ()):
        for target in node.targets:
            if isinstance(target, nodes.Name):
                counts = len(node.targets) == 1 and counts_down(target.id, node.value, bound) is not None
                found[target.id] = found.get(target.id, True) and counts
    for node in everything.get(nodes.NamedExpr, ()):
        found[node.target.id] = False
    for node in everything.get(nodes.For, ()):
        for each in nodes.parts(node.target):
            if isinstance(each, nodes.Name):
                found[each.id] = False
    for node in everything.get(nodes.ExceptHandler, ()):
        if node.name:
            found[node.name] = False
    return frozenset(name for name, counts in found.items() if counts)


def counts_down(name: str, value: ast.expr, bound: dict[str, Any]) -> tuple[ast.expr | None, int] | None:
    """What the length is of, if any, and the number that it is taken times or that the counter is set to."""
    if isinstance(value, nodes.Constant):
        return (None, value.value) if type(value.value) is int and abs(value.value) <= MOST else None
    if not isinstance(value, nodes.BinOp) or type(value.op) is not ast.Sub:
        return None
    if not isinstance(value.left, nodes.Name) or value.left.id != name:
        return None
    taken, times = value.right, 1
    if isinstance(taken, nodes.BinOp) and type(taken.op) is ast.Mult:
        factor = taken.right
        if (
            not isinstance(factor, nodes.Constant)
            or type(factor.value) is not int
            or not 0 < factor.value <= MOST
        ):
            return None
        taken, times = taken.left, factor.value
    if not isinstance(taken, nodes.Call) or not isinstance(taken.func, nodes.Name) or len(taken.args) != 1:
        return None
    if bound.get(taken.func.id) is not len or mentions(taken.args[0], name):
        return None
    return taken.args[0], times


def mentions(node: ast.expr, name: str) -> bool:
    return any(isinstance(each, nodes.Name) and each.id == name for each in nodes.parts(node))
