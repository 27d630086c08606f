"""The operations a chain can hold, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from transforms.spec.generation.code import Code
from transforms.spec.limits import SpecLimits
from transforms.spec.operation import Operation
from transforms.spec.operations.cardinality import compile_cardinality
from transforms.spec.operations.default import compile_default
from transforms.spec.operations.jmespath import compile_jmespath
from transforms.spec.operations.modify import compile_default as compile_modify_default
from transforms.spec.operations.modify import compile_define, compile_overwrite
from transforms.spec.operations.remove import compile_remove
from transforms.spec.operations.shift import compile_shift
from transforms.spec.operations.sort import compile_sort

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
