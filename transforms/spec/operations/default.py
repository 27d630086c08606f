"""`default`: adds what is not there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum
from typing import Any, TypeAlias

from idgraph.model.errors import SpecError, TransformError
from transforms.spec.budget import pay
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
    is_,
    method,
    name,
    new_dict,
    set_item,
    when,
)
from transforms.spec.jolt.modify_values import constant_node
from transforms.spec.jolt.places import PathElement, forget, forget_all, known_object
from transforms.spec.jolt.scalars import parse_int, sort_key, split_or
from transforms.spec.jolt.writers import Room, fill, room_for, size_of, take
from transforms.spec.limits import SpecLimits
from transforms.spec.operation import EVERYTHING, EmitContext, Operation, PathTree, copy_all, merge_trees
from transforms.spec.operation_moves import Keys, OperationMoves, SpecLine
from transforms.spec.pointers import found, pointer

Apply: TypeAlias = Callable[[Any, Room], None]
"""Adds defaults to a container, in place, as long as there is room."""


class _Rank(IntEnum):
    """Exact keys come first, then `a|b`, then `*`."""

    LITERAL = 0
    OR = 1
    STAR = 2


class _Key:
    """One key of the spec; `photos[]` makes or expects an array."""

    def __init__(self, spelled: str) -> None:
        self.makes_array = spelled.endswith("[]")
        self.text = spelled.replace("[]", "") if self.makes_array else spelled
        if "*" in self.text and self.text != "*":
            raise SpecError(f"in default '*' must be the whole key, found '{spelled}'")
        self.rank = _Rank.STAR if self.text == "*" else _Rank.OR if "|" in self.text else _Rank.LITERAL
        self.options = split_or(self.text) if self.rank is _Rank.OR else [self.text]

    @property
    def is_special(self) -> bool:
        """Whether it is more than the key of an object."""
        return self.makes_array or self.rank is not _Rank.LITERAL

    def order(self) -> tuple[int, int, bytes]:
        if self.rank is _Rank.OR:
            return self.rank, len(self.options), sort_key(self.text)
        return self.rank, 0, b""

    def indexes(self) -> list[int]:
        """The options as array indexes."""
        if self.rank is _Rank.STAR:
            return []
        found = [parse_int(option) for option in self.options]
        if any(index is None or index < 0 for index in found):
            raise SpecError(
                f"below a key with '[]' expected an array index, several with '|', or '*', found '{self.text}'"
            )
        return [index for index in found if index is not None]


def compile_default(spec: Any, limits: SpecLimits, code: Code) -> Operation:
    """Raises SpecError with a pointer into `spec`."""
    if not isinstance(spec, dict):
        raise SpecError(f"expected an object as the spec of default, found {found(spec)}")
    into_object = _children(spec, in_array=False, limits=limits)
    try:
        into_array = _children(spec, in_array=True, limits=limits)
    except SpecError:
        into_array = None

    def fill_any(value: Any, room: Room) -> None:
        if type(value) is not list:
            into_object(value, room)
        elif into_array is None:
            raise TransformError("default expects an object here, not an array")
        else:
            into_array(value, room)

    def emit(flow: EmitContext, body: Block) -> None:
        known = flow.known
        value = name(flow.value)
        flow.replace(choice(is_(value, NONE), new_dict(), value), body)
        inner: Block = []
        _emit_object(spec, limits, flow, flow.value, known, inner)
        if known:
            # A value that is known to be an object needs no other way.
            body += inner
        else:
            is_object = is_(call(code.bind(type), name(flow.value)), code.bind(dict))
            filled = call(code.bind(fill_any), name(flow.value), room_for(code, limits))
            body += when(is_object, inner, [*flow.budgeted(), do(filled)])
        flow.known = known

    return Operation(emit, changes=_changes(spec))


def _emit_object(
    spec: dict[str, Any],
    limits: SpecLimits,
    flow: EmitContext,
    container: str,
    place: PathElement | None,
    body: Block,
) -> None:
    """Literal keys become code; what has other keys is left to the functions that know them all."""
    code = flow.code
    if any(_Key(spelled).is_special for spelled in spec):
        forget_all(place)
        apply = code.bind(_children(spec, in_array=False, limits=limits))
        body += [*flow.budgeted(), do(call(apply, name(container), room_for(code, limits)))]
        return
    for key, right in spec.items():
        absent = is_(method(name(container), "get", constant(key)), NONE)
        if not isinstance(right, dict):
            if isinstance(right, list) or (place and key in place.below):
                forget(place, key)
            body += when(absent, [set_item(name(container), constant(key), constant_node(right, code))])
            continue
        known = known_object(place, key)
        variable = known.variable if known else code.fresh("v")
        if known is None:
            forget(place, key)
            body.append(assign(variable, method(name(container), "get", constant(key))))
        made = assign_both(variable, name(container), constant(key), new_dict())
        body += when(is_(name(variable), NONE), [made])
        inner: Block = []
        _emit_object(right, limits, flow, variable, known, inner)
        is_object = is_(call(code.bind(type), name(variable)), code.bind(dict))
        body += inner if known else when(is_object, inner)


def _changes(spec: dict[str, Any]) -> PathTree:
    changed: PathTree = {}
    for spelled, right in spec.items():
        if isinstance(right, dict):
            key = _Key(spelled)
            if key.makes_array or key.rank is _Rank.STAR:
                return EVERYTHING
            for option in key.options:
                below = _changes(right)
                if below is EVERYTHING:
                    return EVERYTHING
                merge_trees(changed.setdefault(option, {}), below)
    return changed


def _children(spec: dict[str, Any], in_array: bool, limits: SpecLimits) -> Apply:
    keys: list[tuple[_Key, Apply]] = []
    last_index = -1
    for spelled, right in spec.items():
        try:
            key = _Key(spelled)
            if in_array:
                indexes = key.indexes()
                if key.rank is _Rank.LITERAL:
                    last_index = max(last_index, indexes[0])
                keys.append((key, _array_child(key, indexes, right, limits)))
            else:
                keys.append((key, _object_child(key, right, limits)))
        except SpecError as error:
            raise error.under(pointer(spelled)) from None
    if last_index > limits.max_index:
        raise SpecError(f"an array index is above {limits.max_index}")
    children = tuple(apply for _, apply in sorted(keys, key=lambda pair: pair[0].order()))

    def apply(container: Any, room: Room) -> None:
        if in_array and type(container) is list:
            fill(container, last_index, room)
        for child in children:
            child(container, room)

    return apply


def _object_child(key: _Key, right: Any, limits: SpecLimits) -> Apply:
    set_default = _setter(key, right, limits)
    text, options, rank = key.text, frozenset(key.options), key.rank

    def apply(container: Any, room: Room) -> None:
        if type(container) is not dict:
            return
        if rank is _Rank.LITERAL:
            set_default(container, text, container.get(text), room)
            return
        pay(len(container))
        for present in list(container):
            if rank is _Rank.STAR or present in options:
                set_default(container, present, container[present], room)

    return apply


def _array_child(key: _Key, indexes: list[int], right: Any, limits: SpecLimits) -> Apply:
    set_default = _setter(key, right, limits)
    every = key.rank is _Rank.STAR

    def apply(container: Any, room: Room) -> None:
        if type(container) is not list:
            return
        pay(len(container) if every else len(indexes))
        for index in range(len(container)) if every else indexes:
            if index < len(container):
                set_default(container, index, container[index], room)

    return apply


def _setter(key: _Key, right: Any, limits: SpecLimits) -> Callable[[Any, Any, Any, Room], None]:
    """Takes the container, the key, what is there, and the room for what is added."""
    key_size = size_of(key.text) if key.rank is _Rank.LITERAL else 1
    if isinstance(right, dict):
        fill_below = _children(right, in_array=key.makes_array, limits=limits)
        make = list if key.makes_array else dict

        def set_below(container: Any, at: Any, present: Any, room: Room) -> None:
            if present is None:
                take(room, key_size)
                present = container[at] = make()
            fill_below(present, room)

        return set_below
    size = size_of(right) + key_size - 1

    def set_value(container: Any, at: Any, present: Any, room: Room) -> None:
        if present is None:
            take(room, size)
            # Each output gets its own array, so that no later operation can change the spec.
            container[at] = copy_all(right)

    return set_value


def default_moves(spec: dict[str, Any], _at: str, line: SpecLine, _before: str) -> OperationMoves:
    """See `OperationMoves`."""
    return OperationMoves([], line, replaces=False, written=list(_defaulted(spec, ())))


def _defaulted(spec: dict[str, Any], above: Keys) -> Iterator[Keys]:
    for spelled, right in spec.items():
        for option in split_or(spelled.removesuffix("[]")):
            place = (*above, None if option == "*" else option.replace("\\", ""))
            if not isinstance(right, dict) or not right or spelled.endswith("[]"):
                yield place
            else:
                yield from _defaulted(right, place)
