"""A program for native/programs.c: its instructions with their constants, and the variables that only count down.

A number at or above zero is a register, a number below zero a constant. The machine validates all of it again, and
keeps variables that only count down as numbers of its own.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from idgraph import native
from transforms.spec.generation import nodes


class UnknownToMachineError(Exception):
    """The machine has no instructions for this: Python's compiler takes the function."""


class Label:
    """A place of the code that jumps lead to."""

    __slots__ = ("at",)

    def __init__(self) -> None:
        self.at = -1


class Program:
    """Collects the instructions of one function."""

    def __init__(self, machine: native.Programs) -> None:
        self._machine = machine
        self._numbers = {name: (number, kinds) for name, (number, kinds) in machine.INSTRUCTIONS.items()}
        self._code: list[int | Label] = []
        self._constants: list[Any] = []
        self._by_identity: dict[int, int] = {}
        self._by_value: dict[tuple[type, Any], int] = {}
        self._registers: dict[str, int] = {}
        self._counters: dict[str, int] = {}
        self._free: list[int] = []
        self._size = 0
        self._cursors = 0
        self._hints = 0
        self._handlers: list[tuple[Any, int, Label]] = []
        self._sites: list[tuple[str, ...]] = []

    def register(self, name: str) -> int:
        """That of a variable."""
        if name not in self._registers:
            self._registers[name] = self._size
            self._size += 1
        return self._registers[name]

    def counter(self, name: str) -> int:
        return self._counters.setdefault(name, len(self._counters))

    def borrow(self) -> int:
        """A register for a value in between, until it is given back."""
        if self._free:
            return self._free.pop()
        self._size += 1
        return self._size - 1

    def give_back(self, register: int) -> None:
        self._free.append(register)

    def cursor(self) -> int:
        self._cursors += 1
        return self._cursors - 1

    def hint(self, key: int) -> int:
        """A note of where a key stands; there is none for a key that may be another one each time."""
        if key >= 0:
            return -1
        self._hints += 1
        return self._hints - 1

    def site(self, keys: tuple[str, ...]) -> int:
        """A place where all these keys are looked up in one object."""
        self._sites.append(keys)
        return len(self._sites) - 1

    def object(self, value: Any) -> int:
        """The constant that is this object."""
        if id(value) not in self._by_identity:
            self._constants.append(value)
            self._by_identity[id(value)] = ~(len(self._constants) - 1)
        return self._by_identity[id(value)]

    def literal(self, value: str | float | bool | None) -> int:
        """The constant that has this value. Of -0.0 and 0.0 each is one."""
        key = (type(value), repr(value) if type(value) is float else value)
        if key not in self._by_value:
            self._constants.append(value)
            self._by_value[key] = ~(len(self._constants) - 1)
        return self._by_value[key]

    def emit(self, name: str, *operands: int | Label) -> None:
        """An instruction. After `*` come how many operands there are, then those."""
        self._code.append(self._numbers[name][0])
        self._code += operands

    def place(self, label: Label) -> None:
        label.at = len(self._code)

    def handle(self, kind: Any, register: int, label: Label) -> None:
        self._handlers.append((kind, register, label))

    def function(self, required: int, most: int) -> Callable[..., Any]:
        """Raises UnknownToMachineError for what is too large for the machine."""
        code = [each if type(each) is int else each.at for each in self._code]  # type: ignore[union-attr]
        shape = (required, most, self._size, len(self._counters), self._cursors, self._hints)
        handlers = tuple((kind, register, label.at) for kind, register, label in self._handlers)
        return self._machine.Program(code, tuple(self._constants), shape, handlers, tuple(self._sites))


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
