"""Functions that Jolt does not have, for what a chain of Jolt operations needs now and then.

Jolt itself runs a spec that names them, and leaves the value as it is.
"""

from __future__ import annotations

from typing import Any

from transforms.jolt.functions.calling import Function, of_text
from transforms.jolt.readers import MISSING
from transforms.readings import epoch_milliseconds, strip_zeros


def _epoch_ms(text: str) -> Any:
    """Text that is no time with an offset has no value."""
    found = epoch_milliseconds(text)
    return MISSING if found is None else found


EXTRA_FUNCTIONS: dict[str, Function] = {
    "epochMs": of_text(_epoch_ms),
    "stripLeadingZeros": of_text(strip_zeros),
}
