"""The table of the operations that a chain can hold, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from transforms.spec.budget import pay
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import Block
from transforms.spec.jmespath.operation import compile_jmespath
from transforms.spec.jolt.scalars import sort_key
from transforms.spec.limits import SpecLimits
from transforms.spec.operation import EVERYTHING, EmitContext, Operation
from transforms.spec.operations.cardinality import compile_cardinality
from transforms.spec.operations.default import compile_default
from transforms.spec.operations.modify import compile_default as compile_modify_default
from transforms.spec.operations.modify import compile_define, compile_overwrite
from transforms.spec.operations.remove import compile_remove
from transforms.spec.operations.shift import compile_shift


def compile_sort(_spec: Any, _limits: SpecLimits, _code: Code) -> Operation:
    """Jolt ignores the spec of `sort`."""

    def emit(flow: EmitContext, body: Block) -> None:
        body += flow.budgeted()
        flow.pass_through(_sorted, body)

    return Operation(emit, builds=EVERYTHING)


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

OPERATIONS: dict[str, CompileOperation] = {
    "shift": compile_shift,
    "default": compile_default,
    "remove": compile_remove,
    "cardinality": compile_cardinality,
    "sort": compile_sort,
    "modify-overwrite-beta": compile_overwrite,
    "modify-default-beta": compile_modify_default,
    "modify-define-beta": compile_define,
    "jmespath": compile_jmespath,
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
