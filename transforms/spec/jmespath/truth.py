"""What is true, equal and comparable in JMESPath."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

from transforms.spec.budget import FREE, paid, pay_for, pay_for_all


def is_number(value: Any) -> bool:
    """An integer, float or Decimal; booleans are none."""
    return isinstance(value, int | float | Decimal) and not isinstance(value, bool)


def are_orderable(one: Any, other: Any) -> bool:
    """Whether `<` can compare the two: numbers, or texts."""
    if isinstance(one, str):
        if not isinstance(other, str):
            return False
        if len(one) > FREE:
            _pay_for_both(one, other)
        return True
    if type(one) is Decimal or type(other) is Decimal:
        pay_for([one, other])
    return is_number(one) and is_number(other)


def is_false(value: Any) -> bool:
    """Null, false, and empty text, arrays and objects; 0 is true."""
    return value is None or value is False or (not value and not is_number(value))


def equal(one: Any, other: Any) -> bool:
    """Python finds 1 and true equal; JMESPath does not, at the top of a value."""
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    if type(one) is list or type(one) is dict:
        # The shorter one of two bounds what is compared.
        if type(one) is not type(other) or len(one) != len(other):
            return False
        pay_for_all(one)
    elif type(one) is str and type(other) is str and len(one) > FREE:
        _pay_for_both(one, other)
    elif type(one) is Decimal or type(other) is Decimal:
        pay_for([one, other])
    return bool(one == other)


def _pay_for_both(one: str, other: str) -> None:
    """The shorter one of two bounds what is compared."""
    paid(min(one, other, key=len))
