"""What is true, equal and comparable in JMESPath."""

from __future__ import annotations

from decimal import Decimal
from typing import Any


def is_number(value: Any) -> bool:
    """An integer, float or Decimal; booleans are none."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def is_orderable(value: Any) -> bool:
    """Whether `<` can take the value."""
    return isinstance(value, str) or is_number(value)


def is_false(value: Any) -> bool:
    """Null, false, and empty text, arrays and objects; 0 is true."""
    return value is None or value is False or (not value and not is_number(value))


def equal(one: Any, other: Any) -> bool:
    """Python finds 1 and true equal; JMESPath does not, at the top of a value."""
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    return bool(one == other)
