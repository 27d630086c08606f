"""The second back end: a verified tree as a program for native/programs.c.

It knows the syntax of `nodes` that `code.verify` lets pass. Another construct raises `UnknownToMachineError`, and
Python's compiler takes the function.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from idgraph import native
from transforms.spec.generation import nodes
from transforms.spec.generation.conditions import Conditions
from transforms.spec.generation.program import Label, Program, UnknownToMachineError


def lower(
    function: ast.FunctionDef, bound: dict[str, Any], machine: native.Programs
) -> Callable[..., Any] | None:
    """The function that a verified tree stands for, None if the machine cannot run it."""
    try:
        return _Lowering(function, bound, machine).made()
    except (UnknownToMachineError, RecursionError):
        return None


class _Lowering(Conditions):
    """Goes over one function, statement by statement."""

    def __init__(self, function: ast.FunctionDef, bound: dict[str, Any], machine: native.Programs) -> None:
        super().__init__(Program(machine), bound)
        self._function = function

    def made(self) -> Callable[..., Any]:
        arguments = self._function.args
        for argument in arguments.args:
            self.program.register(argument.arg)
        if any(type(each) is not nodes.Constant or each.value is not None for each in arguments.defaults):
            raise UnknownToMachineError
        body = list(self._function.body)
        last = body[-1] if body else None
        if isinstance(last, nodes.Try):
            body.pop()
        # Only a few assignments stand before the `try`; none of them can fail.
        for statement in body:
            if not isinstance(statement, nodes.Assign):
                raise UnknownToMachineError
        self.block(body)
        if isinstance(last, nodes.Try):
            self._try(last)
        self.program.emit("RETURN", self.program.literal(None))
        most = len(arguments.args)
        return self.program.function(most - len(arguments.defaults), most)

    def _try(self, tried: ast.Try) -> None:
        if tried.orelse or tried.finalbody:
            raise UnknownToMachineError
        self.block(tried.body)
        self.program.emit("RETURN", self.program.literal(None))
        for handler in tried.handlers:
            label = Label()
            if handler.name is None or not isinstance(handler.type, nodes.Name):
                raise UnknownToMachineError
            self.program.handle(self.bound[handler.type.id], self.program.register(handler.name), label)
            self.program.place(label)
            self.known = {}
            self.block(handler.body)
            self.program.emit("RETURN", self.program.literal(None))

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            make = _STATEMENTS.get(type(statement))
            if make is None:
                raise UnknownToMachineError
            make(self, statement)

    def assign(self, node: Any) -> None:
        first, *others = node.targets
        if isinstance(first, nodes.Name):
            target = self.program.register(first.id)
            self.into(target, node.value)
            self.has_changed(first.id)
            for other in others:
                self._set_item(other, target)
            return
        if others:
            raise UnknownToMachineError
        with self.value(node.value) as value:
            self._set_item(first, value)

    def _set_item(self, target: ast.expr, value: int) -> None:
        if not isinstance(target, nodes.Subscript):
            raise UnknownToMachineError
        with self.value(target.value) as owner, self.value(target.slice) as key:
            self.program.emit("SET_ITEM", owner, key, value)
        self.known = {}

    def expression(self, node: Any) -> None:
        if isinstance(node.value, nodes.Constant):
            return
        call = node.value
        if (
            isinstance(call, nodes.Call)
            and isinstance(call.func, nodes.Attribute)
            and call.func.attr == "append"
        ):
            with self.value(call.func.value) as owner, self.value(call.args[0]) as value:
                self.program.emit("APPEND", owner, value)
            self.known = {}
            return
        with self.value(call):
            pass

    def choose(self, node: Any) -> None:
        """`if`. Its body knows the result of its test."""
        otherwise, end = Label(), Label()
        before = self.known
        self.known = dict(before)
        borrowed, body = self.test_and_find(node, otherwise)
        self.block(body)
        if borrowed is not None:
            self.program.give_back(borrowed)
        after = self.known
        self.known = dict(before)
        if node.orelse:
            if not _ends(node.body):
                self.program.emit("JUMP", end)
            self.program.place(otherwise)
            self.block(node.orelse)
            self.program.place(end)
        else:
            self.program.place(otherwise)
        self.known = {
            key: register
            for key, register in before.items()
            if after.get(key) == register and self.known.get(key) == register
        }

    def loop(self, node: Any) -> None:
        if node.orelse:
            raise UnknownToMachineError
        targets = node.target.elts if isinstance(node.target, nodes.Tuple) else [node.target]
        names = [target.id for target in targets if isinstance(target, nodes.Name)]
        if len(names) != len(targets) or not 1 <= len(names) <= len(_NEXT):
            raise UnknownToMachineError
        again, end = Label(), Label()
        cursor = self.program.cursor()
        by_items = self._iterate(cursor, node.iter, len(names))
        self.program.place(again)
        self.known = {}
        registers = [self.program.register(each) for each in names]
        self.program.emit("NEXT_ITEM" if by_items else _NEXT[len(names) - 1], cursor, *registers, end)
        for each in names:
            self.has_changed(each)
        self.block(node.body)
        self.program.emit("JUMP", again)
        self.program.place(end)
        self.known = {}

    def _iterate(self, cursor: int, over: ast.expr, targets: int) -> bool:
        """Sets the cursor to the beginning; gives whether it goes over items of a dict."""
        if isinstance(over, nodes.IfExp) and targets == 2 and self._is_items(over.orelse):
            # Either way the cursor can give pairs.
            otherwise, end = Label(), Label()
            self.jump_unless(over.test, otherwise)
            with self.value(over.body) as value:
                self.program.emit("ITERATE", cursor, value)
            self.program.emit("JUMP", end)
            self.program.place(otherwise)
            self._iterate(cursor, over.orelse, targets)
            self.program.place(end)
            return True
        if targets == 2 and self._is_items(over):
            with self.value(over.func.value) as owner:  # type: ignore[attr-defined]
                self.program.emit("ITERATE_ITEMS", cursor, owner)
            return True
        with self.value(over) as value:
            self.program.emit("ITERATE", cursor, value)
        return False

    @staticmethod
    def _is_items(node: ast.expr) -> bool:
        return (
            isinstance(node, nodes.Call)
            and isinstance(node.func, nodes.Attribute)
            and node.func.attr == "items"
            and not node.args
        )

    def give(self, node: Any) -> None:
        with self.value(node.value or nodes.NONE) as value:
            self.program.emit("RETURN", value)

    def fail(self, node: Any) -> None:
        if type(node.cause) is not nodes.Constant or node.cause.value is not None:
            raise UnknownToMachineError
        with self.value(node.exc) as value:
            self.program.emit("RAISE", value)

    def delete(self, node: Any) -> None:
        for target in node.targets:
            with self.value(target.value) as owner, self.value(target.slice) as key:
                self.program.emit("DELETE_ITEM", owner, key)
        self.known = {}


def _ends(block: list[ast.stmt]) -> bool:
    return bool(block) and isinstance(block[-1], nodes.Return | nodes.Raise)


_NEXT = ("NEXT", "NEXT_TWO", "NEXT_THREE")
_STATEMENTS: dict[type, Callable[[_Lowering, Any], None]] = {
    nodes.Assign: _Lowering.assign,
    nodes.Expr: _Lowering.expression,
    nodes.If: _Lowering.choose,
    nodes.For: _Lowering.loop,
    nodes.Return: _Lowering.give,
    nodes.Raise: _Lowering.fail,
    nodes.Delete: _Lowering.delete,
}
