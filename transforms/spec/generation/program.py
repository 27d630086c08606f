"""A program for native/programs.c: its instructions with their constants.

A number at or above zero is a register, a number below zero a constant. The machine validates all of it again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from idgraph import native


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
        self._free: list[int] = []
        self._size = 0
        self._cursors = 0
        self._handlers: list[tuple[Any, int, Label]] = []

    def register(self, name: str) -> int:
        """The register of a variable."""
        if name not in self._registers:
            self._registers[name] = self._size
            self._size += 1
        return self._registers[name]

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

    def object(self, value: Any) -> int:
        """The constant that is this object."""
        if id(value) not in self._by_identity:
            self._constants.append(value)
            self._by_identity[id(value)] = ~(len(self._constants) - 1)
        return self._by_identity[id(value)]

    def literal(self, value: str | float | bool | None) -> int:
        """The constant that has this value. -0.0 and 0.0 are two constants."""
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
        shape = (required, most, self._size, self._cursors)
        handlers = tuple((kind, register, label.at) for kind, register, label in self._handlers)
        return self._machine.Program(code, tuple(self._constants), shape, handlers)
