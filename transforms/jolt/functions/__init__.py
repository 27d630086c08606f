"""All functions that `modify-*` operations can call, by name."""

from transforms.jolt.functions.calling import Function
from transforms.jolt.functions.extras import EXTRA_FUNCTIONS
from transforms.jolt.functions.numeric import LONG_MAKERS, NUMERIC_FUNCTIONS
from transforms.jolt.functions.texts import TEXT_FUNCTIONS
from transforms.jolt.functions.values import SQUASHERS, VALUE_FUNCTIONS

FUNCTIONS: dict[str, Function] = {
    **TEXT_FUNCTIONS,
    **NUMERIC_FUNCTIONS,
    **VALUE_FUNCTIONS,
    **EXTRA_FUNCTIONS,
}

__all__ = ["FUNCTIONS", "LONG_MAKERS", "SQUASHERS", "Function"]
