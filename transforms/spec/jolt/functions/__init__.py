"""All functions that `modify-*` operations can call, by name."""

from transforms.spec.jolt.functions.calling import Function
from transforms.spec.jolt.functions.numeric import LONG_MAKERS, NUMERIC_FUNCTIONS, PLAIN_TO_LONG
from transforms.spec.jolt.functions.values import EXTRA_FUNCTIONS, SQUASHERS, TEXT_FUNCTIONS, VALUE_FUNCTIONS

FUNCTIONS: dict[str, Function] = {
    **TEXT_FUNCTIONS,
    **NUMERIC_FUNCTIONS,
    **VALUE_FUNCTIONS,
    **EXTRA_FUNCTIONS,
}

SCALAR_RESULTS = frozenset(
    {"concat", "join", "substring", "leftPad", "rightPad", "size", "min", "max", "avg", "intSum", "longSum"}
    | {"doubleSum", "intSubtract", "longSubtract", "doubleSubtract", "divide", "divideAndRound"}
)
"""Functions whose result holds no object or array."""

BLIND_TO_LONGS = frozenset(
    {"toLower", "toUpper", "trim", "concat", "join", "split", "size", "toString", "toBoolean", "toList"}
    | {
        "noop",
        "isPresent",
        "notNull",
        "isNull",
        "firstElement",
        "lastElement",
        "epochMs",
        "stripLeadingZeros",
    }
)
"""Functions that do the same with a `Long` as with an integer."""

__all__ = [
    "BLIND_TO_LONGS",
    "FUNCTIONS",
    "LONG_MAKERS",
    "PLAIN_TO_LONG",
    "SCALAR_RESULTS",
    "SQUASHERS",
    "Function",
]
