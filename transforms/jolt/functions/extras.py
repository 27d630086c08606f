"""Functions that Jolt does not have, for what a chain of Jolt operations needs now and then.

Jolt itself runs a spec that names them, and leaves the value as it is.
"""

from __future__ import annotations

from typing import Any

from transforms.jolt.functions.calling import Function, for_each
from transforms.jolt.levels import MISSING
from transforms.readings import epoch_milliseconds, strip_zeros


def _epoch_ms(value: Any) -> Any:
    """Text that is no time with an offset has no value."""
    if type(value) is not str:
        return MISSING
    found = epoch_milliseconds(value)
    return MISSING if found is None else found


def _strip_leading_zeros(value: Any) -> Any:
    return strip_zeros(value) if type(value) is str else MISSING


EXTRA_FUNCTIONS: dict[str, Function] = {
    "epochMs": for_each(_epoch_ms),
    "stripLeadingZeros": for_each(_strip_leading_zeros),
}
