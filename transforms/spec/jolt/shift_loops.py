"""The code of a `shift` for keys with `*`: loops over what an event holds, with a bound on their rounds."""

from __future__ import annotations

import ast
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

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
    is_,
    is_not,
    item,
    less,
    loop,
    method,
    name,
    when,
)
from transforms.spec.jolt.elements import Amp
from transforms.spec.jolt.levels import text_node
from transforms.spec.jolt.shift_spec import Node
from transforms.spec.jolt.stars import Star, effort, key_matcher, planner
from transforms.spec.jolt.views import (
    has_long_key,
    is_long_key,
    items_walked,
    matches_walked,
    members,
    values,
    values_walked,
)
from transforms.spec.limits import SpecLimits

if TYPE_CHECKING:
    from transforms.spec.jolt.shift_code import ShiftCode

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
        """How to go over an object. Only where the event may be changed can it change meanwhile."""
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
    """What the `*` stand for, or None. Most keys can be determined by how they begin or end."""
    found = call(code.bind(star.match), key)
    first, last = star.literals[0], star.literals[-1]
    if last:
        return choice(call(code.bind(str.endswith), key, constant(last)), found, NONE)
    return choice(call(code.bind(str.startswith), key, constant(first)), found, NONE) if first else found
