"""Tests as jumps."""

from __future__ import annotations

import ast
from gc import is_tracked
from typing import Any

from transforms.spec.generation import nodes
from transforms.spec.generation.program import Label
from transforms.spec.generation.values import Place, Values


class Conditions(Values):
    """Lowers what a function asks."""

    def test_and_find(self, node: Any, otherwise: Label) -> tuple[int | None, list[ast.stmt]]:
        """The test of an `if`. A test for a key looks the value up at once. Gives the register that was borrowed for
        it, and the statements that are left."""
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
            self.program.emit("FIND", register, owner, key, otherwise)
        if borrowed is None:
            self.has_changed(first.targets[0].id)
        self.known[place] = register
        return borrowed, rest if borrowed is None else node.body

    def _takes(self, first: ast.Assign, place: Place) -> bool:
        """Whether a statement does nothing but put what stands at the place into another variable."""
        (target, *others), value = first.targets, first.value
        return (
            not others
            and isinstance(target, nodes.Name)
            and isinstance(value, nodes.Subscript)
            and self.place_of(value.value, value.slice) == place
            and target.id not in place
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
            with self.value(test.left) as one, self.value(other) as owner:
                self.program.emit(f"JUMP_{word}_IN", one, owner, target)
        else:
            with self.value(test.left) as one, self.value(other) as second:
                name = "EQUAL" if kind is ast.Eq else "LESS"
                self.program.emit(f"JUMP_{word}_{name}", one, second, target)

    def _compare_identity(self, one: ast.expr, other: ast.expr, target: Label, word: str) -> None:
        if isinstance(other, nodes.Constant) and other.value is None:
            with self.value(one) as value:
                self.program.emit(f"JUMP_{word}_NONE", value, target)
            return
        if isinstance(one, nodes.Call) and self.called(one, type):
            with self.value(one.args[0]) as value, self.value(other) as kind:
                self.program.emit(f"JUMP_{word}_TYPE", value, kind, target)
            return
        with self.value(one) as value, self.value(other) as second:
            self.program.emit(f"JUMP_{word}_IS", value, second, target)


def _word(unless: bool) -> str:
    return "UNLESS" if unless else "IF"


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
