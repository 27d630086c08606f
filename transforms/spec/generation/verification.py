"""The check that stands between a tree and the compiler.

Whatever a spec says, its texts and numbers can only be constants or live in objects that the code is given by
name. The check does not trust the code that built the tree: it goes over the finished tree and lets only pass what
is on the lists below.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from idgraph import native
from transforms.spec.generation import nodes
from transforms.spec.generation.lowering import lower

_SYNTAX: frozenset[type] = frozenset(
    kind
    for kind in vars(nodes).values()
    if isinstance(kind, type) and issubclass(kind, ast.AST) and kind.__module__ == nodes.__name__
)
_MARKS = frozenset(
    {ast.Load, ast.Store, ast.Del, ast.Is, ast.IsNot, ast.In, ast.NotIn, ast.Eq, ast.Lt, ast.Or, ast.And}
    | {ast.Add, ast.Sub, ast.Mult}
)
_CONSTANTS = frozenset([str, int, float, bool, type(None)])
METHODS = frozenset(["get", "items", "values", "append", "pop"])
"""The attributes that generated code may name: methods of dicts and lists."""


class VerificationError(Exception):
    """A tree holds what generated code may not hold: a fault of the generator, never of a spec."""


def build(function: nodes.FunctionDef, names: frozenset[str], bound: dict[str, Any]) -> Callable[..., Any]:
    """The function that the tree stands for.

    `names` are all the identifiers it may use; `bound` are the objects behind some of them. The function sees
    nothing else: not even the builtins. The machine in C runs it if there is one that can. Raises RefusedError.
    """
    everything = verify(function, names)
    machine = native.programs
    lowered = lower(function, everything, bound, machine) if machine is not None else None
    return lowered or compiled(function, bound)


def compiled(function: nodes.FunctionDef, bound: dict[str, Any]) -> Callable[..., Any]:
    """The function that Python's compiler makes of a verified tree."""
    scope: dict[str, Any] = {"__builtins__": {}, **bound}
    module = ast.Module([function], [])
    exec(compile(module, "<spec>", "exec", dont_inherit=True), scope)  # noqa: S102 - docs/adr/0009-generated-code.md
    made: Callable[..., Any] = scope[function.name]
    return made


def verify(tree: ast.AST, names: frozenset[str]) -> nodes.ByKind:
    """The nodes of a tree. Raises RefusedError unless it is made of allowed syntax, constants and names only."""
    found: nodes.ByKind = defaultdict(list)
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        kind = type(node)
        if kind is list:
            waiting += node
        elif kind in _SYNTAX:
            found[kind].append(node)
            check = _CHECKS.get(kind)
            if check is not None:
                check(node, names)
            for field in kind._fields:
                below = getattr(node, field, None)
                if below is not None and type(below) not in _PLAIN:
                    waiting.append(below)
        elif kind is ast.arguments:
            waiting += node.args
            if node.vararg or node.kwarg or node.kwonlyargs or node.posonlyargs:
                raise VerificationError("only plain arguments are allowed")
        elif kind not in _MARKS:
            raise VerificationError(f"{kind.__name__} is not allowed")
    return found


_PLAIN = frozenset([str, int, float, bool])
"""Values of fields; those that matter are looked at by `_CHECKS`."""


def _check_name(node: Any, names: frozenset[str]) -> None:
    if node.id not in names:
        raise VerificationError("a name that the generator did not make")


def _check_constant(node: Any, _names: frozenset[str]) -> None:
    if type(node.value) not in _CONSTANTS or node.kind is not None:
        raise VerificationError(f"a constant of type {type(node.value).__name__}")


def _check_attribute(node: Any, _names: frozenset[str]) -> None:
    if node.attr not in METHODS:
        raise VerificationError("an attribute that is no known method")


def _check_call(node: Any, _names: frozenset[str]) -> None:
    if type(node.func) not in (nodes.Name, nodes.Attribute) or node.keywords:
        raise VerificationError("a call of something else than a name or a method")


def _check_argument(node: Any, names: frozenset[str]) -> None:
    if node.arg not in names or node.annotation is not None:
        raise VerificationError("an argument that the generator did not make")


def _check_function(node: Any, names: frozenset[str]) -> None:
    if node.name not in names or node.decorator_list or node.returns:
        raise VerificationError("a function that the generator did not make")


def _check_handler(node: Any, names: frozenset[str]) -> None:
    if node.name not in names or type(node.type) is not nodes.Name:
        raise VerificationError("a handler that the generator did not make")


_CHECKS: dict[type, Callable[[Any, frozenset[str]], None]] = {
    nodes.Name: _check_name,
    nodes.Constant: _check_constant,
    nodes.Attribute: _check_attribute,
    nodes.Call: _check_call,
    nodes.Argument: _check_argument,
    nodes.FunctionDef: _check_function,
    nodes.ExceptHandler: _check_handler,
}
