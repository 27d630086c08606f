"""Tests as jumps."""

from __future__ import annotations

import ast
from gc import is_tracked
from typing import Any

from transforms.spec.generation import nodes
from transforms.spec.generation.program import MOST, Label
from transforms.spec.generation.values import Place, Values


class Conditions(Values):
    """Lowers what a function asks."""

    def test_and_find(self, node: Any, otherwise: Label) -> tuple[int | None, list[ast.stmt]]:
        """The test of an `if`. Where it asks for a key, what stands there is looked up at once. Gives the
        register that was borrowed for it, and what is left to do."""
        test = node.test
        if not isinstance(test, nodes.Compare) or type(test.ops[0]) is not ast.In:
            self.jump_unless(test, otherwise)
            return None, node.body
        place = self.place_of(test.comparators[0], test.left)
        if place is None or not _reads(node.body, place):
            self.jump_unless(test, otherwise)
            return None, node.body
        first, *rest = node.body
        borrowed: int | None = None
        if isinstance(first, nodes.Assign) and self._takes(first, place):
            register = self.program.register(first.targets[0].id)  # type: ignore[attr-defined]
        else:
            register = borrowed = self.program.borrow()
        with self.value(test.comparators[0]) as owner, self.value(test.left) as key:
            site = self.site_of(test.comparators[0], test.left)
            if site:
                self.program.emit("FIND_SCANNED", register, owner, key, *site, otherwise)
            else:
                self.program.emit("FIND", register, owner, key, self.program.hint(key), otherwise)
        if borrowed is None:
            self.has_changed(first.targets[0].id)
        self.known[place] = register
        return borrowed, rest if borrowed is None else node.body

    def _takes(self, first: nodes.Assign, place: Place) -> bool:
        """Whether a statement does nothing but put what stands at the place into another variable."""
        (target, *others), value = first.targets, first.value
        return (
            not others
            and isinstance(target, nodes.Name)
            and isinstance(value, nodes.Subscript)
            and self.place_of(value.value, value.slice) == place
            and target.id not in place
            and target.id not in self.counters
        )

    def jump_unless(self, test: ast.expr, otherwise: Label) -> None:
        if isinstance(test, nodes.BoolOp):
            if type(test.op) is ast.And:
                for each in test.values:
                    self.jump_unless(each, otherwise)
                return
            right = Label()
            for each in test.values[:-1]:
                self._jump_if(each, right)
            self.jump_unless(test.values[-1], otherwise)
            self.program.place(right)
            return
        self._jump(test, otherwise, unless=True)

    def _jump_if(self, test: ast.expr, target: Label) -> None:
        if isinstance(test, nodes.BoolOp):
            around = Label()
            self.jump_unless(test, around)
            self.program.emit("JUMP", target)
            self.program.place(around)
            return
        self._jump(test, target, unless=False)

    def _jump(self, test: ast.expr, target: Label, unless: bool) -> None:
        if isinstance(test, nodes.Compare):
            self._compare(test, target, unless)
            return
        if isinstance(test, nodes.Call) and self.called(test, is_tracked):
            with self.value(test.args[0]) as value:
                self.program.emit(f"JUMP_{_word(unless)}_TRACKED", value, target)
            return
        with self.value(test) as value:
            self.program.emit(f"JUMP_{_word(unless)}_TRUE", value, target)

    def _compare(self, test: ast.Compare, target: Label, unless: bool) -> None:
        (operator,), (other,) = test.ops, test.comparators
        kind = type(operator)
        if kind in _OPPOSITES:
            kind, unless = _OPPOSITES[kind], not unless
        word = _word(unless)
        if kind is ast.Is:
            self._compare_identity(test.left, other, target, word)
        elif kind is ast.In:
            self._compare_membership(test.left, other, target, word)
        elif kind is ast.Lt and unless and self._compare_length(test.left, other, target):
            return
        else:
            with self.value(test.left) as one, self.value(other) as second:
                name = "EQUAL" if kind is ast.Eq else "LESS"
                self.program.emit(f"JUMP_{word}_{name}", one, second, target)

    def _compare_identity(self, one: ast.expr, other: ast.expr, target: Label, word: str) -> None:
        if isinstance(other, nodes.Constant) and other.value is None:
            if word == "UNLESS" and _is_get(one):
                with self.value(one.func.value) as owner, self.value(one.args[0]) as key:  # type: ignore[attr-defined]
                    self.program.emit("JUMP_UNLESS_NONE_AT", owner, key, target)
                return
            with self.value(one) as value:
                self.program.emit(f"JUMP_{word}_NONE", value, target)
            return
        if isinstance(one, nodes.Call) and self.called(one, type):
            with self.value(one.args[0]) as value, self.value(other) as kind:
                self.program.emit(f"JUMP_{word}_TYPE", value, kind, target)
            return
        with self.value(one) as value, self.value(other) as second:
            self.program.emit(f"JUMP_{word}_IS", value, second, target)

    def _compare_membership(self, key: ast.expr, owner: ast.expr, target: Label, word: str) -> None:
        if word == "UNLESS" and isinstance(owner, nodes.Call) and self._asks_for_tracked(key, owner):
            with self.value(owner.args[1]) as over:
                self.program.emit("JUMP_UNLESS_ANY_TRACKED", over, target)
            return
        with self.value(key) as one, self.value(owner) as other:
            self.program.emit(f"JUMP_{word}_IN", one, other, target)

    def _asks_for_tracked(self, key: ast.expr, owner: nodes.Call) -> bool:
        """`True in map(is_tracked, x)`."""
        return (
            isinstance(key, nodes.Constant)
            and key.value is True
            and self.called(owner, map, 2)
            and isinstance(owner.args[0], nodes.Name)
            and self.bound.get(owner.args[0].id) is is_tracked
        )

    def _compare_length(self, one: ast.expr, other: ast.expr, target: Label) -> bool:
        """`len(x) < 5`, `5 < len(x)`, and a counter below a number."""
        for word, side, number in (("SHORTER", one, other), ("LONGER", other, one)):
            if not isinstance(number, nodes.Constant) or type(number.value) is not int:
                continue
            if abs(number.value) > MOST:
                continue
            if isinstance(side, nodes.Name) and side.id in self.counters and word == "SHORTER":
                counter = self.program.counter(side.id)
                self.program.emit("JUMP_UNLESS_BELOW", counter, number.value, target)
                return True
            if isinstance(side, nodes.Call) and self.called(side, len):
                with self.value(side.args[0]) as value:
                    self.program.emit(f"JUMP_UNLESS_{word}", value, number.value, target)
                return True
        return False


def _word(unless: bool) -> str:
    return "UNLESS" if unless else "IF"


def _is_get(node: ast.expr) -> bool:
    return (
        isinstance(node, nodes.Call)
        and isinstance(node.func, nodes.Attribute)
        and node.func.attr == "get"
        and len(node.args) == 1
    )


def _reads(block: list[ast.stmt], place: Place) -> bool:
    """Whether some statement reads what stands at a key."""
    owner, key = place
    wanted = key[0] if isinstance(key, tuple) else key
    for statement in block:
        for node in nodes.parts(statement):
            if (
                isinstance(node, nodes.Subscript)
                and isinstance(node.value, nodes.Name)
                and node.value.id == owner
            ):
                found = node.slice
                if (
                    found.value if isinstance(found, nodes.Constant) else getattr(found, "id", None)
                ) == wanted:
                    return True
    return False


_OPPOSITES: dict[type, type] = {ast.IsNot: ast.Is, ast.NotIn: ast.In}
