"""Functions that Jolt does not have, for what a chain of Jolt operations needs now and then.

Jolt itself runs a spec that names them, and leaves the value as it is.
"""

from __future__ import annotations

from transforms.spec.jolt.functions.calling import Function, of_text
from transforms.spec.jolt.readers import MISSING
from transforms.spec.readings import epoch_milliseconds, strip_zeros

EXTRA_FUNCTIONS: dict[str, Function] = {
    "epochMs": of_text(epoch_milliseconds, MISSING),
    "stripLeadingZeros": of_text(strip_zeros),
}
