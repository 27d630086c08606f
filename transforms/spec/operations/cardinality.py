"""`cardinality`: makes values single (`ONE`) or arrays (`MANY`).

It has peculiarities that specs may rely on. An `@` key adjusts the value itself before its children see it,
and `"@": "ONE"` on what is no array hides it from them. Below an array or a scalar only objects can be
adjusted: anything else is an error.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Any, Final

from idgraph.model.errors import SpecError, TransformError
from idgraph.model.text import name_hint
from transforms.spec.budget import pay
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import (
    NONE,
    Block,
    assign,
    call,
    constant,
    do,
    either,
    in_,
    is_,
    is_not,
    item,
    method,
    name,
    when,
)
from transforms.spec.jolt.elements import At, Literal, parse_key
from transforms.spec.jolt.places import PathElement, forget, forget_all, known_object
from transforms.spec.jolt.scalars import split_or, text_of
from transforms.spec.jolt.stars import GROUPS_A_STEP, Star
from transforms.spec.limits import SpecLimits
from transforms.spec.operation import EVERYTHING, EmitContext, Operation, PathTree
from transforms.spec.operation_moves import ANY_ITEM, Keys, OperationMoves, SpecLine, Wildcard, item_at, move
from transforms.spec.pointers import found, pointer


@dataclass(slots=True)
class _Node:
    key: str
    star: Star | None = None
    many: bool | None = None
    """For a leaf: whether it makes arrays."""
    special: _Node | None = None
    literals: dict[str, _Node] = field(default_factory=dict)
    computed: list[_Node] = field(default_factory=list)

    @property
    def only_leads_on(self) -> bool:
        """Whether there are only literal keys with other keys below them."""
        if self.special is not None or self.computed or self.many is not None:
            return False
        return all(child.many is None for child in self.literals.values())

    @property
    def only_adjusts(self) -> bool:
        """Whether there are only literal keys whose values are adjusted."""
        if self.special is not None or self.computed or not self.literals:
            return False
        return all(child.many is not None for child in self.literals.values())


_NO_ELEMENTS: Final[list[Any]] = []


def compile_cardinality(spec: Any, limits: SpecLimits, code: Code) -> Operation:  # noqa: ARG001
    """Raises SpecError with a pointer into `spec`."""
    if not isinstance(spec, dict):
        raise SpecError(f"expected an object as the spec of cardinality, found {found(spec)}")
    root = _Node("root")
    _read(root, spec)

    def emit(flow: EmitContext, body: Block) -> None:
        _emit(root, constant("root"), NONE, flow, flow.value, flow.known, body)

    return Operation(emit, changes=_changes(root), assigns=_assigned(root, ()))


def _emit(
    node: _Node,
    key: ast.expr,
    parent: ast.expr,
    flow: EmitContext,
    value: str,
    place: PathElement | None,
    body: Block,
) -> None:
    """The way down literal keys becomes code; at its end there is a function."""
    code = flow.code
    adjust: Block = [*flow.budgeted(), do(call(code.bind(partial(_walk, node)), key, name(value), parent))]
    is_object = is_(call(code.bind(type), name(value)), code.bind(dict))
    if not node.only_leads_on:
        if node.only_adjusts and parent is not NONE:
            adjust_wrong = when(_any_wrong(node, value, code), adjust)
            certain = is_not(name(value), NONE)
            body += when(certain, adjust_wrong) if place else when(is_object, adjust_wrong, adjust)
        else:
            body += adjust
        if node.only_adjusts:
            for adjusted in node.literals:
                forget(place, adjusted)
        else:
            forget_all(place)
        return
    inner: Block = []
    for name_below, child in node.literals.items():
        known = known_object(place, name_below)
        if known is None or child.special is not None:
            forget(place, name_below)
            known = None
        below = known.variable if known else code.fresh("v")
        step: Block = []
        _emit(child, constant(name_below), name(value), flow, below, known, step)
        if known is None:
            step = [assign(below, item(name(value), constant(name_below))), *step]
        inner += when(in_(constant(name_below), name(value)), step)
    body += when(is_not(name(value), NONE), inner) if place else when(is_object, inner, adjust)


def _any_wrong(node: _Node, value: str, code: Code) -> ast.expr:
    """Whether some key of an object is not yet as it should be: that is rare."""
    a_list = code.bind(list)
    tests: list[ast.expr] = []
    for key, child in node.literals.items():
        if child.many:
            found = method(name(value), "get", constant(key), code.bind(_NO_ELEMENTS))
            tests.append(is_not(call(code.bind(type), found), a_list))
        else:
            tests.append(is_(call(code.bind(type), method(name(value), "get", constant(key))), a_list))
    return reduce(either, tests)


def _read(parent: _Node, spec: dict[str, Any]) -> None:
    if not spec:
        raise SpecError("an empty object adjusts nothing")
    for key, right in spec.items():
        try:
            child = _read_node(key, right)
        except SpecError as error:
            raise error.under(pointer(key)) from None
        parent.literals[key] = child
        if key == "@":
            parent.special = child
        elif child.star is not None:
            parent.computed.append(child)
    if len(parent.computed) > 1:
        raise SpecError(
            "cardinality takes one key with '*' at each level, found "
            + " and ".join(f"'{node.key}'" for node in parent.computed)
        )


def _read_node(key: str, right: Any) -> _Node:
    if "@" in key and key != "@":
        raise SpecError(f"'@' must be the whole key, found '{key}'")
    node = _Node(key, Star(key) if "*" in key else None)
    if isinstance(right, dict):
        if key == "@":
            raise SpecError("'@' cannot have children")
        _read(node, right)
    elif right in ("ONE", "MANY"):
        node.many = right == "MANY"
    else:
        hint = name_hint(right, ("ONE", "MANY")) if isinstance(right, str) else None
        raise SpecError(
            f'expected "ONE", "MANY", or an object to go on below the key, found {found(right)}', hint=hint
        )
    return node


def _changes(node: _Node) -> PathTree:
    changed: PathTree = {}
    for key, child in node.literals.items():
        if child.many is None:
            below = _changes(child)
            # `@` may put an element of an array in the array's place, which is changed then.
            if child.special is not None or child.star is not None or below is EVERYTHING:
                return EVERYTHING
            changed[key] = below
    return changed


def _assigned(node: _Node, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for key, child in node.literals.items():
        if key == "@":
            # The root itself cannot be replaced.
            found += [path] if path else []
        elif child.many is not None:
            found.append((*path, "*" if child.star else key))
        else:
            found += _assigned(child, (*path, "*" if child.star else key))
    return found


def _walk(node: _Node, key: Any, value: Any, parent: Any) -> None:
    if node.special is not None:
        value = _adjust(bool(node.special.many), key, value, parent)
    if type(value) is dict or type(value) is list:
        groups = sum(star.star.groups for star in node.computed if star.star)
        pay(len(value) * (1 + groups // GROUPS_A_STEP))
    if type(value) is dict:
        # Without a wildcard most keys are none of the spec's.
        names = list(value) if node.computed else [name for name in value if name in node.literals]
        for name in names:
            _visit(node, name, name, value[name], value)
    elif type(value) is list:
        for index in range(len(value)):
            _visit(node, str(index), index, value[index], value)
    elif value is not None:
        text = text_of(value)
        _visit(node, text, text, None, text)


def _visit(node: _Node, name: str, key: Any, value: Any, parent: Any) -> None:
    child = node.literals.get(name)
    if child is None:
        child = next(
            (star for star in node.computed if star.star and star.star.match(name) is not None), None
        )
    elif child.star is not None and child.star.match(name) is None:
        return
    if child is None:
        return
    if child.many is None:
        _walk(child, key, value, parent)
    else:
        _adjust(child.many, key, value, parent)


def _adjust(many: bool, key: Any, value: Any, parent: Any) -> Any:
    """The value that children go on with."""
    if not many and parent is None and type(value) is not list:
        return None
    if type(parent) is not dict:
        raise TransformError("cardinality can only adjust the values of an object")
    if not many:
        if type(value) is not list:
            return None
        parent[key] = first = value[0] if value else None
        return first
    if type(value) is list:
        return value
    made: list[Any] = []
    if value is not None:
        # Jolt takes the key away and puts it back, so that it becomes the last one.
        made.append(parent.pop(key))
    parent[key] = made
    return made


def cardinality_moves(spec: dict[str, Any], _at: str, line: SpecLine, _before: str) -> OperationMoves:
    """See `OperationMoves`."""
    return OperationMoves([move(*each, True, line) for each in _adjusted(spec, ())], line, replaces=False)


def _adjusted(spec: dict[str, Any], above: Keys) -> Iterator[tuple[Keys, Keys]]:
    """The moves of a `cardinality`: one of several values to the place of all, or a value into an array of it."""
    for spelled, right in spec.items():
        for key in split_or(spelled):
            element = parse_key(key)
            keys = element.key if isinstance(element, Literal) else Wildcard(element)
            place = above if isinstance(element, At) else (*above, keys)
            if isinstance(right, dict):
                yield from _adjusted(right, place)
            else:
                yield (place, (*place, item_at(0))) if right == "MANY" else ((*place, ANY_ITEM), place)
