"""`remove`: takes keys and array elements away."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from idgraph.model.errors import SpecError
from transforms.spec.budget import pay
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import (
    NONE,
    Block,
    assign,
    call,
    constant,
    delete_item,
    do,
    in_,
    is_,
    is_not,
    method,
    name,
    when,
)
from transforms.spec.jolt.places import PathElement, forget, forget_all, known_object
from transforms.spec.jolt.scalars import parse_int, split_or
from transforms.spec.jolt.stars import GROUPS_A_STEP, Star
from transforms.spec.limits import SpecLimits
from transforms.spec.operation import EVERYTHING, EmitContext, Operation, PathTree, merge_trees
from transforms.spec.operation_moves import ANY_ITEM, OperationMoves, Place, SpecLine, move
from transforms.spec.pointers import found, pointer

_NODES_A_STEP = 4


@dataclass(slots=True)
class _Node:
    """One key: without children it is removed, with children the walk continues below it."""

    key: str
    star: Star | None
    index: int | None
    children: list[_Node] | None

    def keys_of(self, container: dict[str, Any]) -> list[str]:
        if self.star is None:
            return [self.key] if self.key in container else []
        pay(len(container) * (1 + self.star.groups // GROUPS_A_STEP))
        if self.star.matches_all:
            return list(container)
        match = self.star.match
        return [key for key in container if match(key) is not None]

    def indexes_of(self, container: list[Any]) -> range:
        if self.star is not None:
            return range(len(container)) if self.star.matches_all else range(0)
        if self.index is None or self.index >= len(container):
            return range(0)
        return range(self.index, self.index + 1)


def compile_remove(spec: Any, limits: SpecLimits, code: Code) -> Operation:  # noqa: ARG001
    """Raises SpecError with a pointer into `spec`."""
    if not isinstance(spec, dict):
        raise SpecError(f"expected an object as the spec of remove, found {found(spec)}")
    nodes = _read(spec)

    def emit(flow: EmitContext, body: Block) -> None:
        _emit(nodes, flow, flow.value, flow.known, body)

    return Operation(emit, changes=_changes(nodes))


def _emit(nodes: list[_Node], flow: EmitContext, value: str, place: PathElement | None, body: Block) -> None:
    """Literal keys of objects become code; for anything else there is a function."""
    code = flow.code
    otherwise: Block = [*flow.budgeted(), do(call(code.bind(partial(_apply, nodes)), name(value)))]
    if any(node.star is not None for node in nodes):
        forget_all(place)
        body += otherwise
        return
    inner: Block = []
    for node in nodes:
        if node.children is not None:
            _emit_below(node, node.children, flow, value, place, inner)
    for node in nodes:
        if node.children is None:
            forget(place, node.key)
            key = constant(node.key)
            inner += when(in_(key, name(value)), [delete_item(name(value), key)])
    is_object = is_(call(code.bind(type), name(value)), code.bind(dict))
    body += when(is_not(name(value), NONE), inner) if place else when(is_object, inner, otherwise)


def _emit_below(
    node: _Node,
    children: list[_Node],
    flow: EmitContext,
    container: str,
    place: PathElement | None,
    body: Block,
) -> None:
    known = known_object(place, node.key)
    if known is not None:
        _emit(children, flow, known.variable, known, body)
        return
    forget(place, node.key)
    below = flow.code.fresh("v")
    body.append(assign(below, method(name(container), "get", constant(node.key))))
    _emit(children, flow, below, None, body)


def _read(spec: dict[str, Any]) -> list[_Node]:
    nodes: list[_Node] = []
    for spelled, right in spec.items():
        try:
            if not isinstance(right, dict) and (not isinstance(right, str) or right.strip()):
                raise SpecError(
                    f'expected "" to remove the key, or an object to go on below it, found {found(right)}'
                )
            for key in split_or(spelled):
                index = parse_int(key)
                nodes.append(
                    _Node(
                        key,
                        Star(key) if "*" in key else None,
                        index if index is not None and index >= 0 else None,
                        _read(right) if isinstance(right, dict) else None,
                    )
                )
        except SpecError as error:
            raise error.under(pointer(spelled)) from None
    return nodes


def _changes(nodes: list[_Node]) -> PathTree:
    changed: PathTree = {}
    for node in nodes:
        if node.children is not None:
            below = _changes(node.children)
            if node.star is not None or below is EVERYTHING:
                return EVERYTHING
            merge_trees(changed.setdefault(node.key, {}), below)
    return changed


def _apply(nodes: list[_Node], container: Any) -> None:
    if type(container) is dict:
        pay(1 + len(nodes) // _NODES_A_STEP)
        doomed: list[str] = []
        for node in nodes:
            keys = node.keys_of(container)
            if node.children is None:
                doomed += keys
            else:
                for key in keys:
                    _apply(node.children, container[key])
        for key in doomed:
            container.pop(key, None)
    elif type(container) is list:
        pay(len(container))
        gone: set[int] = set()
        for node in nodes:
            indexes = node.indexes_of(container)
            if node.children is None:
                gone.update(indexes)
            else:
                for index in indexes:
                    _apply(node.children, container[index])
        if gone:
            container[:] = [element for index, element in enumerate(container) if index not in gone]


def remove_moves(spec: dict[str, Any], _at: str, line: SpecLine, _before: str) -> OperationMoves:
    """See `OperationMoves`. The elements behind one that is removed have other indexes then."""
    removed = list(_removed(spec, ()))
    arrays = [(*each[:-1], ANY_ITEM) for each in removed if each[-1] and each[-1].isdecimal()]
    return OperationMoves([move(each, each, True, line) for each in arrays], line, False, removed)


def _removed(spec: Any, above: Place) -> Iterator[Place]:
    for spelled, right in spec.items() if isinstance(spec, dict) else ():
        for key in split_or(spelled):
            if "*" in key and key != "*":
                continue
            place = (*above, None if key == "*" else key.replace("\\", ""))
            if isinstance(right, dict):
                yield from _removed(right, place)
            else:
                yield place
