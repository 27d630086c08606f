"""The code of a `modify-*` operation: it changes objects with known keys in place, and loops over arrays and wildcards."""

from __future__ import annotations

import ast

from idgraph.model.errors import SpecError
from transforms.spec.budget import budgeted, count_steps, count_weight
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import (
    NONE,
    Block,
    assign,
    assign_both,
    call,
    choice,
    constant,
    do,
    either,
    equals,
    in_,
    is_,
    is_not,
    item,
    loop,
    method,
    name,
    new_dict,
    not_in,
    set_item,
    when,
)
from transforms.spec.jolt.modify_spec import (
    Child,
    Children,
    ChildShape,
    Mode,
    check_container,
    element,
    grower,
    lengthen,
    slot_value,
    slots,
    walked,
)
from transforms.spec.jolt.modify_values import Alternative
from transforms.spec.jolt.places import PathElement, Spot, forget, forget_all
from transforms.spec.jolt.stars import effort
from transforms.spec.jolt.views import MISSING
from transforms.spec.jolt.writers import room_for
from transforms.spec.limits import SpecLimits
from transforms.spec.nesting import watch

_MAX_LOOPS = 16
"""Python bounds how deeply loops may be nested."""


class ModifyLoops:
    """Makes the loops of one operation."""

    def __init__(self, modify: ModifyCode, limits: SpecLimits, moves: bool) -> None:
        self._modify = modify
        self._limits = limits
        self._moves = moves
        self.depth = 0

    def others(self, parent: Child, below: Children, value: str, size: str, body: Block) -> None:
        """The children that are no literal keys. `size` is the variable of an array's former size."""
        code = self._modify.code
        former: ast.expr = name(size) if size else call(code.bind(len), name(value))
        if below.shape is ChildShape.EITHER and below.computed and not size:
            size = code.fresh("n")
            is_list = is_(call(code.bind(type), name(value)), code.bind(list))
            count = assign(size, call(code.bind(len), name(value)))
            body += [assign(size, constant(0)), *when(is_list, [count])]
            former = name(size)
        # In the define mode an index that the spec names is visited in its turn, and by the wildcard not.
        if parent.mode is Mode.DEFINE and below.computed and below.shape is ChildShape.ARRAY:
            self._wildcards(below, value, former, below.indexes, body)
            return
        for index, child in below.indexes.items():
            self._index(child, value, index, former, body)
        if below.computed:
            self._wildcards(below, value, former, {}, body)

    def _index(self, child: Child, value: str, index: int, size: ast.expr, body: Block) -> None:
        code = self._modify.code
        found = code.fresh("v")
        spot = Spot(value, constant(index), size, is_object=False)
        body.append(assign(found, call(code.bind(element), name(value), constant(index), size)))
        self._modify.visit(child, spot, found, body)

    def _wildcards(
        self, below: Children, value: str, size: ast.expr, apart: dict[int, Child], body: Block
    ) -> None:
        if self.depth == _MAX_LOOPS:
            raise SpecError(f"more than {_MAX_LOOPS} keys with '*' inside one another")
        code = self._modify.code
        over, key, text, found = (code.fresh(dead_letter) for dead_letter in "dkkv")
        body += budgeted(code, self._limits)
        body.append(assign(over, call(code.bind(slots), name(value))))
        written = max(child.size for _, child in below.computed) + effort(star for star, _ in below.computed)
        count_steps(code, name(over), self._limits.max_steps, body, written)
        spot = Spot(value, name(key), size, is_object=below.shape is ChildShape.OBJECT)
        self.depth += 1
        visit: Block = [assign(found, call(code.bind(slot_value), name(value), name(key), size))]
        after: Block = []
        for star, child in reversed(below.computed):
            groups = child.level.group_texts or code.fresh("g")
            matched: Block = []
            if child.level.matched is not None:
                matched.append(assign(child.level.matched, name(text)))
            self._modify.visit(child, spot, found, matched)
            test = when(is_not(name(groups), NONE), matched, after)
            after = [assign(groups, call(code.bind(star.match), name(text))), *test]
        visit += after
        for index, child in apart.items():
            named: Block = []
            self._index(child, value, index, size, named)
            visit = when(equals(name(key), constant(index)), named, visit)
        self.depth -= 1
        slot: ast.expr = name(over)
        if self._moves:
            slot = call(code.bind(walked), name(value), slot)
        body += loop([key, text], slot, visit)


class ModifyCode:
    """Makes the code of one operation."""

    def __init__(self, code: Code, placed: str, limits: SpecLimits, moves: bool) -> None:
        """`moves` says whether some function may change the keys of an object that is walked."""
        self.code = code
        self._placed = placed
        self._limits = limits
        self._missing = code.bind(MISSING)
        self._loops = ModifyLoops(self, limits, moves)

    def children(self, child: Child, value: str, place: PathElement | None, body: Block) -> None:
        """The code below a key whose value is an object or array of the right kind."""
        below = child.below
        if below is None:
            raise ValueError("the child has no children")
        if below.last_index >= 0:
            size = self.code.fresh("n")
            last, room = constant(below.last_index), room_for(self.code, self._limits)
            body.append(assign(size, call(self.code.bind(lengthen), name(value), last, room)))
        else:
            size = ""
        if child.level.tree is not None:
            body.append(assign(child.level.tree, name(value)))
        if below.shape is ChildShape.OBJECT:
            self._literals(below, value, place, body)
        if below.computed:
            forget_all(place)
        self._loops.others(child, below, value, size, body)

    def visit(self, child: Child, spot: Spot, value: str, body: Block) -> None:
        """A key with its value in a variable, MISSING if it is not there."""
        if child.only_present:
            inner: Block = []
            self._visit(child, spot, value, inner)
            body += when(is_not(name(value), self._missing), inner)
        else:
            self._visit(child, spot, value, body)

    def _visit(self, child: Child, spot: Spot, value: str, body: Block) -> None:
        if child.below is None:
            self._leaf(child, spot, value, body)
        else:
            self._inner(child, child.below, spot, value, body)

    def _literals(self, below: Children, value: str, place: PathElement | None, body: Block) -> None:
        for key, child in below.literals.items():
            known = place.below.get(key) if place else None
            is_object = child.below is not None and child.below.shape is ChildShape.OBJECT
            if known is not None and not known.is_list and is_object:
                self._known(child, value, key, known, body)
                continue
            spot = Spot(value, constant(key), constant(0), place=place)
            if child.below is None:
                self._watch(spot, place, key)
                self._literal_leaf(child, spot, body)
            else:
                found = self._read(spot, body)
                self.visit(child, spot, found, body)
                forget(place, key)

    def _watch(self, spot: Spot, place: PathElement | None, key: str) -> None:
        """A value at a key of a container that has others below it is looked at when it is put there."""
        if place is None or key in place.below:
            forget(place, key)
        else:
            place.watched.add(key)
            spot.is_watched = bool(place.below)

    def _known(self, child: Child, container: str, key: str, place: PathElement, body: Block) -> None:
        """A container that has a variable: None if there is none, and then no key either."""
        inner: Block = []
        self.children(child, place.variable, place, inner)
        variable = name(place.variable)
        if child.only_present:
            body += when(is_not(variable, NONE), inner)
            return
        make = assign_both(place.variable, name(container), constant(key), new_dict())
        body += [*when(is_(variable, NONE), [make]), *inner]

    def _read(self, spot: Spot, body: Block) -> str:
        found = self.code.fresh("v")
        body.append(assign(found, method(name(spot.container), "get", spot.key, self._missing)))
        return found

    def _literal_leaf(self, child: Child, spot: Spot, body: Block) -> None:
        """A key of an object that gets a value: mostly a function of what it had."""
        alternatives = child.alternatives
        of_value = len(alternatives) == 1 and alternatives[0].of_value
        if not of_value or child.level.tree is not None or child.mode is not Mode.OVERWRITE:
            self.visit(child, spot, self._read(spot, body) if _looks(child) else "", body)
            return
        made = self.code.fresh("v")
        inner: Block = [assign(made, item(name(spot.container), spot.key))]
        self._call(alternatives[0], spot, made, made, inner)
        self._charge(made, inner)
        self._store(child, spot, made, inner)
        body += when(in_(spot.key, name(spot.container)), inner)

    def _leaf(self, child: Child, spot: Spot, value: str, body: Block) -> None:
        if child.level.tree is not None:
            found = choice(is_(name(value), self._missing), NONE, name(value))
            body.append(assign(child.level.tree, found))
        made = self.code.fresh("v")
        self._evaluate(child.alternatives, spot, value, made, body, present=child.only_present)
        self._charge(made, body)
        self._store(child, spot, made, body, certain=any(not each.may_miss for each in child.alternatives))

    def _evaluate(
        self,
        alternatives: list[Alternative],
        spot: Spot,
        value: str,
        made: str,
        body: Block,
        present: bool,
    ) -> None:
        """The first alternative that has a value; `present` says that the value at hand is not MISSING."""
        first, *others = alternatives
        if first.of_value and not present:
            inner: Block = []
            self._call(first, spot, value, made, inner)
            body += when(is_(name(value), self._missing), [assign(made, self._missing)], inner)
        else:
            self._call(first, spot, value, made, body)
        if others and first.may_miss:
            rest: Block = []
            self._evaluate(others, spot, value, made, rest, present)
            body += when(is_(name(made), self._missing), rest)

    def _call(self, alternative: Alternative, spot: Spot, value: str, made: str, body: Block) -> None:
        """The code of an alternative: short texts and the like take a short way, where there is one."""
        long_way: Block = budgeted(self.code, self._limits) if alternative.pays else []
        long_way.append(assign(made, alternative.make(name(value))))
        if spot.is_watched and not alternative.gives_scalar:
            long_way += watch(self.code, name(made))
        arguments: list[ast.expr] = [name(value)] if alternative.of_value else alternative.arguments
        body += alternative.prepare
        short_way = alternative.shorten
        body += short_way(self.code, arguments, made, long_way) if short_way else long_way

    def _charge(self, made: str, body: Block) -> None:
        """In a loop, what functions make is paid for in steps."""
        if self._loops.depth:
            count_weight(self.code, name(made), self._limits.max_steps, body)

    def _store(self, child: Child, spot: Spot, made: str, body: Block, certain: bool = False) -> None:
        container = name(spot.container)
        storing: Block = [set_item(container, spot.key, name(made))]
        if child.places:
            storing += self._note_placed(made)
        allowed = self._allowed(child.mode, spot)
        if allowed is not None:
            storing = when(allowed, storing)
        if not spot.is_object:
            storing = [do(call(self.code.bind(check_container), container)), *storing]
        body += storing if certain else when(is_not(name(made), self._missing), storing)

    def _note_placed(self, made: str) -> Block:
        kind = call(self.code.bind(type), name(made))
        is_container = either(is_(kind, self.code.bind(dict)), is_(kind, self.code.bind(list)))
        return when(is_container, [assign(self._placed, constant(True))])

    def _allowed(self, mode: Mode, spot: Spot) -> ast.expr | None:
        """Whether the mode lets a value be written; None if it always does."""
        container = name(spot.container)
        if not spot.is_object:
            return call(self.code.bind(mode.allows), container, spot.key, spot.size)
        if mode is Mode.OVERWRITE:
            return None
        if mode is Mode.DEFAULT:
            return is_(method(container, "get", spot.key), NONE)
        return not_in(spot.key, container)

    def _inner(self, child: Child, below: Children, spot: Spot, value: str, body: Block) -> None:
        code, kind = self.code, call(self.code.bind(type), name(value))
        empty = either(is_(name(value), NONE), is_(name(value), self._missing))
        inner: Block = []
        self.children(child, value, None, inner)
        if below.shape is ChildShape.EITHER:
            body += when(is_(empty, constant(False)), inner)
            return
        grow = code.bind(grower(child.mode, below.shape.value))
        body += when(
            empty, [assign(value, call(grow, name(spot.container), spot.key, name(value), spot.size))]
        )
        body += when(is_(kind, code.bind(below.shape.value)), inner)


def _looks(child: Child) -> bool:
    """Whether anything needs the value that a key has."""
    if child.only_present or child.level.tree is not None:
        return True
    return any(alternative.of_value for alternative in child.alternatives)
