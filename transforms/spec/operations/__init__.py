"""The table of the operations that a chain can hold, by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple, TypeAlias

from transforms.spec.budget import pay
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import Block
from transforms.spec.jmespath.operation import compile_jmespath, jmespath_moves
from transforms.spec.jolt.scalars import sort_key
from transforms.spec.limits import SpecLimits
from transforms.spec.operation import EVERYTHING, EmitContext, Operation
from transforms.spec.operation_moves import OperationMoves, SpecLine
from transforms.spec.operations.cardinality import cardinality_moves, compile_cardinality
from transforms.spec.operations.default import compile_default, default_moves
from transforms.spec.operations.modify import compile_default as compile_modify_default
from transforms.spec.operations.modify import compile_define, compile_overwrite, modify_moves
from transforms.spec.operations.remove import compile_remove, remove_moves
from transforms.spec.operations.shift import compile_shift, shift_moves


def compile_sort(_spec: Any, _limits: SpecLimits, _code: Code) -> Operation:
    """Jolt ignores the spec of `sort`."""

    def emit(flow: EmitContext, body: Block) -> None:
        body += flow.budgeted()
        flow.pass_through(_sorted, body)

    return Operation(emit, builds=EVERYTHING)


def sort_moves(_spec: Any, _at: str, line: SpecLine, _before: str) -> OperationMoves:
    """See `OperationMoves`."""
    return OperationMoves([], line, replaces=False)


def _sorted(value: Any) -> Any:
    if type(value) is dict:
        pay(len(value))
        return {key: _sorted(value[key]) for key in sorted(value, key=_order)}
    if type(value) is list:
        pay(len(value))
        return [_sorted(element) for element in value]
    return value


def _order(key: str) -> tuple[bool, bytes]:
    return not key.startswith("~"), sort_key(key)


CompileOperation: TypeAlias = Callable[[Any, SpecLimits, Code], Operation]
"""Takes the operation's spec and the function that its chain becomes; raises SpecError with a pointer into the spec."""

MovesOf: TypeAlias = Callable[[dict[str, Any], str, SpecLine, str], OperationMoves]
"""Takes the operation's spec, its JSON pointer, all of it as a line, and the earlier operations as text."""


class OperationKind(NamedTuple):
    """The two statements of what an operation does: the code for events, and the moves that every analysis reads."""

    compile: CompileOperation
    moves: MovesOf


OPERATIONS = {
    "shift": OperationKind(compile_shift, shift_moves),
    "default": OperationKind(compile_default, default_moves),
    "remove": OperationKind(compile_remove, remove_moves),
    "cardinality": OperationKind(compile_cardinality, cardinality_moves),
    "sort": OperationKind(compile_sort, sort_moves),
    "modify-overwrite-beta": OperationKind(compile_overwrite, partial(modify_moves, "modify-overwrite-beta")),
    "modify-default-beta": OperationKind(
        compile_modify_default, partial(modify_moves, "modify-default-beta")
    ),
    "modify-define-beta": OperationKind(compile_define, partial(modify_moves, "modify-define-beta")),
    "jmespath": OperationKind(compile_jmespath, jmespath_moves),
}

JOLT_CLASSES = {
    "com.bazaarvoice.jolt.Shiftr": "shift",
    "com.bazaarvoice.jolt.Defaultr": "default",
    "com.bazaarvoice.jolt.Removr": "remove",
    "com.bazaarvoice.jolt.CardinalityTransform": "cardinality",
    "com.bazaarvoice.jolt.Sortr": "sort",
    "com.bazaarvoice.jolt.Modifier$Overwritr": "modify-overwrite-beta",
    "com.bazaarvoice.jolt.Modifier$Defaultr": "modify-default-beta",
    "com.bazaarvoice.jolt.Modifier$Definr": "modify-define-beta",
}
"""Jolt also takes the names of its classes as operations."""

WITHOUT_SPEC = frozenset({"sort"})

WITH_ALTERNATIVES = frozenset(OPERATIONS) - {"cardinality", "sort", "jmespath"}
"""Operations in whose keys `a|b` stands for several keys."""


def moves_of(entry: dict[str, Any], at: str, before: str) -> OperationMoves:
    """The moves of an operation that compiles, at a JSON pointer; `before` are the earlier operations, as text."""
    kind = OPERATIONS[JOLT_CLASSES.get(entry["operation"], entry["operation"])]
    return kind.moves(entry.get("spec") or {}, at, SpecLine(f"/operations{at}", repr(entry)), before)
