"""Expressions as instructions."""

from __future__ import annotations

import ast
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from gc import is_tracked
from typing import Any, TypeAlias

from idgraph import native
from transforms.spec.generation import nodes
from transforms.spec.generation.program import Label, Program, UnknownToMachineError
from transforms.spec.pointers import strip_zeros

Place: TypeAlias = "tuple[str, object]"
"""A variable that holds an object, and a key of it."""

_MOST_OPERANDS = 50


class Operand:
    """A register or constant that has an expression's value within its context. A class, since a function that
    becomes a context manager takes three times as long, and there are a hundred in a small spec."""

    __slots__ = ("_is_borrowed", "_node", "_operand", "_values")

    def __init__(self, values: Values, node: ast.expr) -> None:
        self._values = values
        self._node = node

    def __enter__(self) -> int:
        values = self._values
        known = values.at_hand(self._node)
        self._is_borrowed = known is None
        if known is None:
            self._operand = values.program.borrow()
            values.into(self._operand, self._node)
        else:
            self._operand = known
            values.held.append(known)
        return self._operand

    def __exit__(self, *_: object) -> None:
        if self._is_borrowed:
            self._values.program.give_back(self._operand)
        else:
            self._values.held.pop()


class Values(ABC):
    """Lowers what a function of these objects evaluates."""

    def __init__(self, program: Program, bound: dict[str, Any]) -> None:
        self.program = program
        self.bound = bound
        self.known: dict[Place, int] = {}
        """Registers that have what stands at a key, as long as no object can have changed."""
        self.held: list[int] = []
        """Operands of the instruction in the making: until it is there they must not change."""

    def value(self, node: ast.expr) -> Operand:
        """The operand that has an expression's value, as long as the context lasts."""
        return Operand(self, node)

    def at_hand(self, node: ast.expr) -> int | None:
        if isinstance(node, nodes.Constant):
            return self.program.literal(node.value)  # type: ignore[arg-type]
        if isinstance(node, nodes.Name):
            if node.id in self.bound:
                return self.program.object(native.reference_of(self.bound[node.id]))
            return self.program.register(node.id)
        if isinstance(node, nodes.Subscript):
            return self.known.get(self.place_of(node.value, node.slice))  # type: ignore[arg-type]
        return None

    def place_of(self, owner: ast.expr, key: ast.expr) -> Place | None:
        if not isinstance(owner, nodes.Name):
            return None
        if isinstance(key, nodes.Constant) and type(key.value) is str:
            return owner.id, (key.value,)
        return (owner.id, key.id) if isinstance(key, nodes.Name) else None

    def has_changed(self, name: str) -> None:
        """A variable has a new value."""
        register = self.program.register(name)
        self.known = {
            place: kept for place, kept in self.known.items() if name not in place and kept != register
        }

    def into(self, target: int, node: ast.expr) -> None:
        """Puts an expression's value into a register."""
        known = self.at_hand(node)
        if known is not None:
            if known != target:
                self.program.emit("MOVE", target, known)
            return
        make = _EXPRESSIONS.get(type(node))
        if make is None:
            raise UnknownToMachineError
        make(self, target, node)

    def new_dict(self, target: int, node: Any) -> None:
        if not node.keys:
            self.program.emit("NEW_DICT", target)
            return
        if len(node.keys) != 1:
            raise UnknownToMachineError
        with self.value(node.keys[0]) as key, self.value(node.values[0]) as value:
            self.program.emit("NEW_DICT_OF", target, key, value)

    def new_list(self, target: int, node: Any) -> None:
        self._with_all("NEW_LIST", (target,), node.elts)

    def new_tuple(self, target: int, node: Any) -> None:
        self._with_all("NEW_TUPLE", (target,), node.elts)

    def _with_all(self, name: str, first: tuple[int, ...], arguments: list[ast.expr]) -> None:
        """An instruction with any number of operands."""
        if len(arguments) > _MOST_OPERANDS:
            raise UnknownToMachineError
        with ExitStack() as stack:
            operands = [stack.enter_context(self.value(argument)) for argument in arguments]
            self.program.emit(name, *first, len(operands), *operands)

    def item(self, target: int, node: Any) -> None:
        with self.value(node.value) as owner, self.value(node.slice) as key:
            self.program.emit("ITEM", target, owner, key)

    def named(self, target: int, node: Any) -> None:
        register = self.program.register(node.target.id)
        if register in self.held:
            raise UnknownToMachineError
        self.into(register, node.value)
        self.has_changed(node.target.id)
        self.program.emit("MOVE", target, register)

    def choice(self, target: int, node: Any) -> None:
        otherwise, end = Label(), Label()
        self.jump_unless(node.test, otherwise)
        self.into(target, node.body)
        self.program.emit("JUMP", end)
        self.program.place(otherwise)
        self.into(target, node.orelse)
        self.program.place(end)

    def calculation(self, target: int, node: Any) -> None:
        with self.value(node.left) as one, self.value(node.right) as other:
            self.program.emit(_OPERATORS[type(node.op)], target, one, other)

    def either_or_both(self, target: int, node: Any) -> None:
        """`a or b`, `a and b` as values."""
        end = Label()
        jump = "JUMP_IF_TRUE" if type(node.op) is ast.Or else "JUMP_UNLESS_TRUE"
        *first, last = node.values
        # The target may be one of the variables that come later.
        register = self.program.borrow()
        for each in first:
            self.into(register, each)
            self.program.emit(jump, register, end)
        self.into(register, last)
        self.program.place(end)
        self.program.emit("MOVE", target, register)
        self.program.give_back(register)

    def truth(self, target: int, node: Any) -> None:
        """A comparison as a value."""
        self.choice(target, nodes.choice(node, nodes.constant(True), nodes.constant(False)))

    def call(self, target: int, node: Any) -> None:
        function = node.func
        if isinstance(function, nodes.Attribute):
            self._call_method(target, function, node.args)
            return
        called = self.bound.get(function.id)
        if (called is type or called is len) and len(node.args) == 1:
            with self.value(node.args[0]) as value:
                self.program.emit("TYPE" if called is type else "LENGTH", target, value)
            return
        with self.value(function) as operand:
            self._with_all("CALL", (target, operand), node.args)
        if called not in _PURE and native.reference_of(called) is called:
            self.known = {}

    def _call_method(self, target: int, function: Any, arguments: list[ast.expr]) -> None:
        if function.attr == "get" and len(arguments) in (1, 2):
            missing = arguments[1] if len(arguments) == 2 else nodes.NONE
            with (
                self.value(function.value) as owner,
                self.value(arguments[0]) as key,
                self.value(missing) as default,
            ):
                self.program.emit("GET", target, owner, key, default)
            return
        name = self.program.literal(function.attr)
        self._with_all("CALL_METHOD", (target, name), [function.value, *arguments])
        if function.attr not in ("items", "values"):
            self.known = {}

    def called(self, node: ast.expr, function: object, arguments: int = 1) -> bool:
        """Whether an expression is a call of this object with so many arguments."""
        return (
            isinstance(node, nodes.Call)
            and isinstance(node.func, nodes.Name)
            and len(node.args) == arguments
            and self.bound.get(node.func.id) is function
        )

    @abstractmethod
    def jump_unless(self, test: ast.expr, otherwise: Label) -> None:
        """Continues if a test is true."""


_PURE: frozenset[Any] = frozenset([is_tracked, strip_zeros, str.lower, str.upper, str.strip, str.split])
_OPERATORS = {ast.Add: "ADD", ast.Sub: "SUBTRACT", ast.Mult: "MULTIPLY"}
_EXPRESSIONS: dict[type, Callable[[Values, int, Any], None]] = {
    nodes.Dict: Values.new_dict,
    nodes.List: Values.new_list,
    nodes.Tuple: Values.new_tuple,
    nodes.Subscript: Values.item,
    nodes.NamedExpr: Values.named,
    nodes.IfExp: Values.choice,
    nodes.BinOp: Values.calculation,
    nodes.BoolOp: Values.either_or_both,
    nodes.Compare: Values.truth,
    nodes.Call: Values.call,
}
