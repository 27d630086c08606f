"""The code of a `shift`: what is done with a value whose key matched."""

from __future__ import annotations

import ast
from functools import partial

from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import (
    NONE,
    Block,
    assign,
    call,
    choice,
    constant,
    equals,
    in_,
    is_,
    is_not,
    item,
    name,
    plus,
    when,
)
from transforms.spec.jolt.elements import Dollar, Hash
from transforms.spec.jolt.levels import Level, text_node
from transforms.spec.jolt.numbers import parse_int
from transforms.spec.jolt.place_code import PlaceCode
from transforms.spec.jolt.places import WalkedPaths
from transforms.spec.jolt.shift_loops import LoopCode
from transforms.spec.jolt.shift_spec import Node
from transforms.spec.jolt.views import MISSING, NOTHING, literal_view
from transforms.spec.limits import SpecLimits

_MOST_IN_ONE = 16


class ShiftCode:
    """Makes the code of one operation. `None` stands for a value that is null for certain."""

    def __init__(self, code: Code, places: WalkedPaths, place_code: PlaceCode, limits: SpecLimits) -> None:
        self.code = code
        self.places = places
        self.place_code = place_code
        self._loops = LoopCode(self, limits)
        self._doubled = False

    @property
    def long_keys(self) -> str:
        """The variable that says whether an object with a long key was walked; empty if none is."""
        return self._loops.long_keys

    def node(self, node: Node, value: ast.expr | None, body: Block) -> None:
        """What to do with a value whose key matched `node`. The value must not be dear to evaluate."""
        if node.is_leaf:
            self._leaf(node, value, body)
        else:
            self._inner(node, value, body)

    def count(self, level: Level, body: Block) -> None:
        """One more match at a level, if some reference counts them."""
        counter = level.owner.count
        if counter is not None:
            body.append(assign(counter, plus(name(counter), constant(1))))

    def is_missing_not(self, variable: str) -> ast.expr:
        return is_not(name(variable), self.code.bind(MISSING))

    def _leaf(self, node: Node, value: ast.expr | None, body: Block) -> None:
        if node.lookup is not None:
            found = self.code.fresh("v")
            body.append(assign(found, node.lookup))
            test = self.is_missing_not(found)
            body += when(
                test, self.place_code.branch(lambda block: self._write(node, value, name(found), block))
            )
            return
        data: ast.expr = value or NONE
        if isinstance(node.element, Dollar | Hash) and node.text is not None:
            data = text_node(node.text)
            if isinstance(node.element, Dollar) and node.level.matched is not None:
                body.append(assign(node.level.matched, data))
        self._write(node, value, data, body)

    def _write(self, node: Node, value: ast.expr | None, data: ast.expr, body: Block) -> None:
        if node.level.tree is not None:
            body.append(assign(node.level.tree, value or NONE))
        if len(node.outputs) > 1 and not isinstance(data, ast.Name | ast.Constant):
            variable = self.code.fresh("v")
            body.append(assign(variable, data))
            data = name(variable)
        for output in node.outputs:
            self.place_code.write(self.places.targets[id(output)], data, body)

    def _inner(self, node: Node, value: ast.expr | None, body: Block) -> None:
        if node.lookup is not None:
            found = self.code.fresh("v")
            body.append(assign(found, node.lookup))
            test = self.is_missing_not(found)
            body += when(test, self.place_code.branch(lambda block: self._visit(node, name(found), block)))
            return
        if value is not None and not isinstance(value, ast.Name):
            variable = self.code.fresh("v")
            body.append(assign(variable, value))
            value = name(variable)
        self._visit(node, value, body)

    def _visit(self, node: Node, value: ast.expr | None, body: Block) -> None:
        level = node.level
        if level.tree is not None:
            body.append(assign(level.tree, value or NONE))
        if level.count is not None and level.alias is None:
            body.append(assign(level.count, constant(0)))
        for special in node.specials:
            self._special(node, special, value, body)
        if value is None or not (node.literals or node.computed):
            return
        if not self._doubled and not self._is_root(node) and _chooses_by_text(node):
            self._by_text_or_below(node, value, body)
        else:
            self._below(node, value, body)

    def _special(self, parent: Node, special: Node, value: ast.expr | None, body: Block) -> None:
        self.node(special, value, body)
        # Leaves among the specials are not counted, nor is a node whose value was not found.
        counter = parent.level.owner.count
        if counter is None or special.is_leaf:
            return
        counted: Block = []
        self.count(parent.level, counted)
        if special.lookup is None:
            body += counted
        else:
            body += when(is_not(special.lookup, self.code.bind(MISSING)), counted)

    def _by_text_or_below(self, node: Node, value: ast.expr, body: Block) -> None:
        """A text that chooses between branches takes a short way: below it there is nothing but null."""
        self._doubled = True
        by_text = self.place_code.branch(lambda block: self._by_text(node, value, block))
        below = self.place_code.branch(lambda block: self._below(node, value, block))
        self._doubled = False
        is_text = is_(call(self.code.bind(type), value), self.code.bind(str))
        body += when(is_text, by_text, when(is_not(value, NONE), below))

    def _by_text(self, node: Node, value: ast.expr, body: Block) -> None:
        if node.computed:
            self._loops.one_key(node, value, body)
            return
        tests = [
            (equals(value, constant(key)), self.place_code.branch(partial(self._child, node, child, None)))
            for key, child in node.literals.items()
        ]
        # A text is only one of them, but blocks in one another are hard on the compiler.
        for first in range(0, len(tests), _MOST_IN_ONE):
            after: Block = []
            for test, taken in reversed(tests[first : first + _MOST_IN_ONE]):
                after = when(test, taken, after)
            body += after

    def _below(self, node: Node, value: ast.expr, body: Block) -> None:
        if node.is_conflicted:
            self._loops.all_keys(node, value, body, with_literals=True)
            return
        if node.literals:
            self._literals(node, value, body)
        if node.computed:
            self._loops.all_keys(node, value, body, with_literals=False)

    def _literals(self, node: Node, value: ast.expr, body: Block) -> None:
        """Literal keys, in the order of the spec."""
        code = self.code
        indexes = {key: index for key in node.literals if (index := parse_int(key)) is not None}
        view = call(code.bind(literal_view(frozenset(node.literals), indexes)), value)
        members = code.fresh("d")
        # Null is common, and a call is dear.
        other = choice(is_(value, NONE), code.bind(NOTHING), view)
        body.append(assign(members, choice(is_(call(code.bind(type), value), code.bind(dict)), value, other)))

        def visit(block: Block) -> None:
            for key, child in node.literals.items():
                found = item(name(members), constant(key))
                block += when(
                    in_(constant(key), name(members)),
                    self.place_code.branch(partial(self._child, node, child, found)),
                )

        if len(node.literals) > 2 and not self._is_root(node):
            body += when(name(members), self.place_code.branch(visit))
        else:
            visit(body)

    def _is_root(self, node: Node) -> bool:
        return node.level.key == "root" and not self.place_code.depth

    def _child(self, parent: Node, child: Node, value: ast.expr | None, body: Block) -> None:
        self.node(child, value, body)
        self.count(parent.level, body)


def _chooses_by_text(node: Node) -> bool:
    """Whether the spec says what to do with a text here: keys that name texts, with something other than the
    parts of an object below them."""
    children = (*node.literals.values(), *node.computed)
    return any(child.specials and not child.is_leaf for child in children)
