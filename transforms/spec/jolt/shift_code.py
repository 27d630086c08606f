"""The code of a `shift`: the writes for a matched key, and bounded loops over an event's keys for those with `*`."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import Any

from idgraph.model.errors import SpecError
from transforms.spec.budget import budgeted, count_steps
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
    less,
    loop,
    method,
    name,
    plus,
    when,
)
from transforms.spec.jolt.elements import Amp, Dollar, Hash
from transforms.spec.jolt.levels import Level, text_node
from transforms.spec.jolt.place_code import PlaceCode
from transforms.spec.jolt.places import WalkedPaths
from transforms.spec.jolt.scalars import parse_int
from transforms.spec.jolt.shift_spec import Node
from transforms.spec.jolt.stars import Star, effort, key_matcher, planner
from transforms.spec.jolt.views import (
    MISSING,
    NOTHING,
    has_long_key,
    is_long_key,
    items_walked,
    literal_view,
    matches_walked,
    members,
    values,
    values_walked,
)
from transforms.spec.limits import SpecLimits

_MAX_LOOPS = 16
"""Python bounds how deeply loops may be nested."""


class LoopCode:
    """Makes the loops of one operation."""

    def __init__(self, shift: ShiftCode, limits: SpecLimits) -> None:
        self._shift = shift
        self._limits = limits
        self.long_keys = ""
        """The variable that says whether an object with a long key was walked."""

    def all_keys(self, node: Node, value: ast.expr, body: Block, with_literals: bool) -> None:
        """All keys that a value has, in its order."""
        code = self._shift.code
        only = node.computed[0].element if len(node.computed) == 1 and not with_literals else None
        keyless = isinstance(only, Star) and only.matches_all and node.computed[0].level.matched is None
        is_object = is_(call(code.bind(type), value), code.bind(dict))
        over = code.fresh("d")
        if keyless:
            items = self._walked(values_walked, value, method(value, "values"))
            body.append(assign(over, choice(is_object, items, call(code.bind(values), value))))
        else:
            spelled: Block = [assign(over, call(code.bind(members), value))]
            is_array = is_(call(code.bind(type), value), code.bind(list))
            # To spell the indexes of an array takes no steps.
            others = when(is_array, spelled, [*budgeted(code, self._limits), *spelled])
            body += when(is_object, [assign(over, value)], others)
            self._note_long_keys(has_long_key, over, body)
        writes = max(child.effort for child in node.computed)
        stars = effort(child.element for child in node.computed if isinstance(child.element, Star))
        count_steps(code, name(over), self._limits.max_steps, body, writes + stars)
        if keyless:
            below = code.fresh("v")
            rounds = self._round(lambda block: self._star(node, node.computed[0], None, name(below), block))
            body += loop([below], name(over), rounds)
        elif isinstance(only, Star) and only.matches_all:
            key, below = code.fresh("k"), code.fresh("v")
            rounds = self._round(lambda block: self._star(node, node.computed[0], key, name(below), block))
            body += loop([key, below], self._items(over), rounds)
        elif all(isinstance(child.element, Star) for child in node.computed):
            self._planned(node, over, body, with_literals)
        else:
            key, below = code.fresh("k"), code.fresh("v")
            rounds = self._round(lambda block: self._first_match(node, key, name(below), block))
            body += loop([key, below], self._items(over), rounds)

    def _note_long_keys(self, is_long: Callable[[Any], bool], over: str, body: Block) -> None:
        """A key can be written as often as there are rounds of loops, which is nothing if it is short."""
        code = self._shift.code
        self.long_keys = code.variable("long", constant(False))
        noted: Block = [assign(self.long_keys, constant(True)), *budgeted(code, self._limits)]
        body += when(call(code.bind(is_long), name(over)), noted)

    def one_key(self, node: Node, value: ast.expr, body: Block) -> None:
        """The only key of a text: the text. Nothing but null is below it."""
        key = self._shift.code.fresh("k")
        body.append(assign(key, value))
        self._note_long_keys(is_long_key, key, body)
        self._first_match(node, key, None, body)

    def _round(self, build: Callable[[Block], None]) -> Block:
        place_code = self._shift.place_code
        if place_code.depth == _MAX_LOOPS:
            raise SpecError(f"more than {_MAX_LOOPS} keys with '*' inside one another")
        place_code.depth += 1
        block = place_code.branch(build)
        place_code.depth -= 1
        return block

    def _planned(self, node: Node, over: str, body: Block, with_literals: bool) -> None:
        code = self._shift.code
        literals = list(node.literals) if with_literals else []
        stars = [child.element for child in node.computed if isinstance(child.element, Star)]
        children = [*(node.literals[key] for key in literals), *node.computed]
        plan = code.bind(planner(key_matcher(literals, stars)))
        key, number, groups = code.fresh("k"), code.fresh("c"), code.fresh("g")
        below = item(name(over), name(key))

        def visit(block: Block) -> None:
            self._choose(node, children, 0, number, (key, groups), below, block)

        matches: ast.expr = call(plan, name(over))
        matches = self._walked(matches_walked, name(over), matches)
        body += loop([key, number, groups], matches, self._round(visit))

    def _items(self, over: str) -> ast.expr:
        return self._walked(items_walked, name(over), method(name(over), "items"))

    def _walked(self, walk: object, over: ast.expr, quick: ast.expr) -> ast.expr:
        """The way to go over an object, which can change meanwhile only if the event may be changed."""
        if self._shift.places.all_exclusive:
            return quick
        arguments = (over, quick) if walk is matches_walked else (over,)
        code = self._shift.code
        return choice(is_(name(code.borrowed), NONE), call(code.bind(walk), *arguments), quick)

    def _choose(
        self,
        parent: Node,
        children: list[Node],
        first: int,
        number: str,
        matched: tuple[str, str],
        value: ast.expr,
        body: Block,
    ) -> None:
        """Finds the child by its number, by halves."""
        if len(children) > 1:
            half = len(children) // 2
            sides = [
                self._shift.place_code.branch(
                    partial(self._choose, parent, part, start, number, matched, value)
                )
                for part, start in ((children[:half], first), (children[half:], first + half))
            ]
            body += when(less(name(number), constant(first + half)), sides[0], sides[1])
            return
        child = children[0]
        if isinstance(child.element, Star):
            if child.level.group_texts is not None:
                body.append(assign(child.level.group_texts, name(matched[1])))
            self._star(parent, child, matched[0], value, body)
        else:
            self._child(parent, child, value, body)

    def _star(self, parent: Node, child: Node, key: str | None, value: ast.expr | None, body: Block) -> None:
        self._shift.place_code.begin_round(self._shift.places.inside.get(child.level, []), body)
        if child.level.matched is not None and key is not None:
            body.append(assign(child.level.matched, name(key)))
        self._child(parent, child, value, body)

    def _child(self, parent: Node, child: Node, value: ast.expr | None, body: Block) -> None:
        self._shift.node(child, value, body)
        self._shift.count(parent.level, body)

    def _first_match(self, node: Node, key: str, value: ast.expr | None, body: Block) -> None:
        """Literal keys first, then the wildcards, the most specific first."""
        branch = self._shift.place_code.branch
        after: Block = []
        for child in reversed(node.computed):
            after = self._computed(node, child, key, value, after)
        for literal, child in reversed(node.literals.items()):
            taken = branch(partial(self._child, node, child, value))
            after = when(equals(name(key), constant(literal)), taken, after)
        body += after

    def _computed(self, node: Node, child: Node, key: str, value: ast.expr | None, otherwise: Block) -> Block:
        code = self._shift.code
        taken = self._shift.place_code.branch(partial(self._star, node, child, key, value))
        if isinstance(child.element, Amp) and child.text is not None:
            return when(equals(name(key), text_node(child.text)), taken, otherwise)
        if not isinstance(child.element, Star):
            return otherwise
        if child.element.matches_all:
            return taken
        groups = child.level.group_texts or code.fresh("g")
        found = _matched(code, child.element, name(key))
        return [assign(groups, found), *when(is_not(name(groups), NONE), taken, otherwise)]


def _matched(code: Code, star: Star, key: ast.expr) -> ast.expr:
    """The texts of the `*`, or None. Most keys can be recognised by their beginning or end."""
    found = call(code.bind(star.match), key)
    first, last = star.literals[0], star.literals[-1]
    if last:
        return choice(call(code.bind(str.endswith), key, constant(last)), found, NONE)
    return choice(call(code.bind(str.startswith), key, constant(first)), found, NONE) if first else found


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
        """The code for a value whose key matched `node`. The value must not be dear to evaluate."""
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
