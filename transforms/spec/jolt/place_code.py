"""Code that writes into the places of a `shift`'s output, making containers when the first value comes."""

from __future__ import annotations

import ast
from collections.abc import Callable

from idgraph.model.errors import SpecError
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import (
    NONE,
    Block,
    assign,
    assign_both,
    call,
    do,
    is_,
    is_not,
    method,
    name,
    new_dict,
    new_list,
    new_tuple,
    not_in,
    set_item,
    when,
)
from transforms.spec.jolt.levels import Text, text_node
from transforms.spec.jolt.places import PathElement, Shared, State, Target
from transforms.spec.jolt.writers import StepKind, element_finder, put, put_again, room_for, writer
from transforms.spec.limits import SpecLimits
from transforms.spec.nesting import watch

_MOST_MADE = 20_000
"""The number of times that the code of one operation may make a container."""


class PlaceCode:
    """Follows what is certain of each container, branch by branch, so that most tests need no code."""

    def __init__(self, code: Code, borrowed: str, limits: SpecLimits) -> None:
        self._code = code
        self._borrowed = borrowed
        self._limits = limits
        self._changed: list[tuple[PathElement | Shared, State]] = []
        self._made = 0
        self.reaches_below = False
        """Whether a write may reach into what another one put there."""
        self.depth = 0
        """The number of loops around the code at hand."""

    def branch(self, build: Callable[[Block], None]) -> Block:
        """A block that may run or not: what it makes is not certain after it."""
        outside, self._changed = self._changed, []
        block: Block = []
        build(block)
        for place, before in reversed(self._changed):
            place.state = State.MAYBE if before is State.UNSET else before
            outside.append((place, before))
        self._changed = outside
        return block

    def begin_round(self, places: list[PathElement], body: Block) -> None:
        """These places are rebuilt in this round of a loop."""
        for place in places:
            body.append(assign(place.variable, NONE))
            place.state = State.UNSET

    def write(self, target: Target, value: ast.expr, body: Block) -> None:
        """The value is evaluated at most once, but may stand in several branches."""
        place = target.place
        value = self._noted(target, value, body)
        if place.is_element:
            self._write_element(target, value, body)
        elif target.shared is not None:
            self._write_shared(target, target.shared, value, body)
        elif not target.exclusive:
            self._write_generally(target, value, body)
        elif place.is_list:
            body += self._filled(place, new_list(value), [do(method(name(place.variable), "append", value))])
        else:
            key = text_node(target.texts[0])
            body += self._filled(place, new_dict(key, value), [set_item(name(place.variable), key, value)])

    def ensure(self, place: PathElement, body: Block) -> None:
        """Make the container if it is not there."""
        if place.is_element:
            return
        body += self._filled(place, new_list() if place.is_list else new_dict(), [])

    def _noted(self, target: Target, value: ast.expr, body: Block) -> ast.expr:
        """Keeps what is known of the place; gives the value as the code continues with it."""
        place = target.place
        if place.depth or not target.kinds or isinstance(value, ast.Constant):
            return value
        key = target.texts[0]
        if not isinstance(key, str):
            place.is_open = True
        elif target.kinds != (StepKind.KEY,):
            place.leaves.add(key)
        else:
            place.watched.add(key)
            if place.below:
                value = self._kept(value, body)
                body += watch(self._code, value)
        return value

    def _kept(self, value: ast.expr, body: Block) -> ast.expr:
        if isinstance(value, ast.Name):
            return value
        variable = self._code.fresh("v")
        body.append(assign(variable, value))
        return name(variable)

    def _write_shared(self, target: Target, shared: Shared, value: ast.expr, body: Block) -> None:
        """The first value is put there; what a second one does to it is rare."""
        place, key = target.place, text_node(target.texts[0])
        if isinstance(key, ast.Call):
            found = self._code.fresh("y")
            body.append(assign(found, key))
            key = name(found)
        owner, array = name(place.variable), shared.variable
        if shared.state is not State.UNSET or shared.depth != self.depth:
            store = self._put(owner, key, value, array)
        else:
            store = [set_item(owner, key, value)]
        body += self._filled(place, new_dict(key, value), store)
        self._set(shared)

    def _put(self, owner: ast.expr, key: ast.expr, value: ast.expr, array: str) -> Block:
        again = call(self._code.bind(put_again), owner, key, value, name(array), name(self._borrowed))
        return when(
            is_(method(owner, "get", key), NONE), [set_item(owner, key, value)], [assign(array, again)]
        )

    def _write_element(self, target: Target, value: ast.expr, body: Block) -> None:
        """The element is looked up once in each round of its loop."""
        place, code = target.place, self._code
        array = place.parent
        if array is None:
            raise ValueError("an element is in an array")
        index, element = code.fresh("y"), name(place.variable)

        def find(block: Block) -> None:
            self.ensure(array, block)
            find_element = code.bind(element_finder(self._limits.max_index))
            room = room_for(code, self._limits)
            found = call(find_element, name(array.variable), name(index), room)
            block.append(assign(place.variable, found))

        look_up: Block = [assign(index, text_node(place.key))]
        look_up += when(is_not(name(index), NONE), self.branch(find))
        body += when(is_(element, NONE), look_up)
        write: Block = []
        if target.shared is not None:
            write += self._put(element, text_node(target.texts[0]), value, target.shared.variable)
        else:
            self._write_into(target, element, value, write)
        body += when(is_not(element, NONE), write)

    def _write_generally(self, target: Target, value: ast.expr, body: Block) -> None:
        if not any(_is_optional(text) for text in target.texts):
            self.ensure(target.place, body)
        self._write_into(target, name(target.place.variable), value, body)

    def _write_into(self, target: Target, start: ast.expr, value: ast.expr, body: Block) -> None:
        """Along the rest of the path, from a container."""
        code, borrowed = self._code, name(self._borrowed)
        self.reaches_below = True
        if target.kinds == (StepKind.KEY,) and not _is_optional(target.texts[0]):
            body.append(do(call(code.bind(put), start, text_node(target.texts[0]), value, borrowed)))
            return
        write = code.bind(writer(target.kinds, self._limits.max_index))
        room = room_for(code, self._limits) if StepKind.INDEX in target.kinds else NONE
        keys = new_tuple(*map(text_node, target.texts))
        if not any(_is_optional(text) for text in target.texts):
            body.append(do(call(write, value, start, borrowed, keys, room)))
            return
        known = code.fresh("y")

        def write_found(block: Block) -> None:
            self.ensure(target.place, block)
            block.append(do(call(write, value, start, borrowed, name(known), room)))

        body.append(assign(known, keys))
        body += when(not_in(NONE, name(known)), self.branch(write_found))

    def _filled(self, place: PathElement, made: ast.expr, present: Block) -> Block:
        """`made` becomes the container if there is none, else `present` is done."""
        state = place.state
        if state is State.SET:
            return present
        making = self._make(place, made)
        self._set(place)
        if state is State.UNSET and place.depth == self.depth:
            return making
        return when(is_(name(place.variable), NONE), making, present)

    def _make(self, place: PathElement, made: ast.expr) -> Block:
        parent = place.parent
        if parent is None:
            raise ValueError("the outermost container is always there")
        self._made += 1
        if self._made > _MOST_MADE:
            raise SpecError("the spec is too large: too many long output paths")
        key = text_node(place.key)
        if parent.state is State.SET:
            return [assign_both(place.variable, name(parent.variable), key, made)]
        variable = name(place.variable)
        return [
            assign(place.variable, made),
            *self._filled(parent, new_dict(key, variable), [set_item(name(parent.variable), key, variable)]),
        ]

    def _set(self, place: PathElement | Shared) -> None:
        if place.state is not State.SET:
            self._changed.append((place, place.state))
            place.state = State.SET


def _is_optional(text: Text) -> bool:
    return not isinstance(text, str) and text.optional
