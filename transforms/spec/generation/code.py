"""One generated function: its names, the objects bound to them, and the check before it is compiled.

The texts and numbers of a spec can only be constants or live in bound objects. The check does not trust the code that
built the tree: it walks the finished tree and accepts only what is on the lists below.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from idgraph import native
from transforms.spec.generation import nodes
from transforms.spec.generation.lowering import lower
from transforms.spec.generation.nodes import Argument, Block, FunctionDef, assign, constant, name

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


def build(function: ast.FunctionDef, names: frozenset[str], bound: dict[str, Any]) -> Callable[..., Any]:
    """The function that the tree stands for.

    `names` are all the identifiers it may use; `bound` are the objects behind some of them. The function sees
    nothing else: not even the builtins. The machine in C runs it if there is one that can. Raises VerificationError.
    """
    verify(function, names)
    machine = native.programs
    lowered = lower(function, bound, machine) if machine is not None else None
    return lowered or compiled(function, bound)


def compiled(function: ast.FunctionDef, bound: dict[str, Any]) -> Callable[..., Any]:
    """The function that Python's compiler makes of a verified tree."""
    scope: dict[str, Any] = {"__builtins__": {}, **bound}
    module = ast.Module([function], [])
    exec(compile(module, "<spec>", "exec", dont_inherit=True), scope)  # noqa: S102 - docs/adr/0009-generated-code.md
    made: Callable[..., Any] = scope[function.name]
    return made


def verify(tree: ast.AST, names: frozenset[str]) -> None:
    """Raises VerificationError unless a tree is made of allowed syntax, constants and names only."""
    waiting: list[Any] = [tree]
    while waiting:
        node = waiting.pop()
        kind = type(node)
        if kind is list:
            waiting += node
        elif kind in _SYNTAX:
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


class Code:
    """Makes the names of one function, so that none comes from a spec."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self.payload, self.context, self.borrowed = (self.fresh(letter) for letter in "vcb")
        self._bound: dict[str, Any] = {}
        self._by_identity: dict[int, str] = {}
        self._purposes: dict[str, str] = {}
        self._unset: list[str] = []
        self.start: Block = []
        """Statements before all others."""

    def fresh(self, letter: str, unset: bool = False) -> str:
        """A new local variable; `unset` ones are None when the function starts."""
        made = f"{letter}{len(self._names)}"
        self._names.add(made)
        if unset:
            self._unset.append(made)
        return made

    def variable(self, purpose: str, start: ast.expr) -> str:
        """The one variable for a purpose, set when the function starts."""
        made = self._purposes.get(purpose)
        if made is None:
            made = self._purposes[purpose] = self.fresh("s")
            self.start.append(assign(made, start))
        return made

    def bind(self, value: Any) -> ast.Name:
        """The name of an object that the code uses."""
        known = self._by_identity.get(id(value))
        if known is None:
            known = self._by_identity[id(value)] = self.fresh("x")
            self._bound[known] = value
        return name(known)

    def uses(self, value: Any) -> bool:
        """Whether the code so far uses an object."""
        return id(value) in self._by_identity

    def function(self, arguments: list[str], defaults: int, body: Block) -> Callable[..., Any]:
        """The function with this body; so many of its last arguments are None if left out.

        The variables that are None at the start are arguments too, which nobody gives: Python sets all of them at
        once, where assignments would be a tenth of what a small spec does.
        """
        signature = ast.arguments(
            posonlyargs=[],
            args=[Argument(argument, None) for argument in arguments + self._unset],
            kwonlyargs=[],
            kw_defaults=[],
            defaults=[constant(None)] * (defaults + len(self._unset)),
        )
        title = self.fresh("f")
        function = FunctionDef(title, signature, self.start + body, [], None)
        return build(function, frozenset(self._names), self._bound)
