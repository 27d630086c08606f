"""Numbers as Java's `Integer`, `Long` and `Double` would treat them.

Which of Java's types a JSON integer has follows from its size. What `toLong` and its like make is a `Long`
whatever its size: `Long` marks it until the chain ends.
"""

from __future__ import annotations

import math
import re
from decimal import Decimal
from typing import Any

from transforms.spec.budget import paid

INT_MIN, INT_MAX = -(2**31), 2**31 - 1
LONG_MIN, LONG_MAX = -(2**63), 2**63 - 1
_INT_BITS, _LONG_BITS = 2**32 - 1, 2**64 - 1

_INTEGER = re.compile(r"[+-]?\d+")
_DOUBLE = re.compile(r"([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)[fFdD]?")
# Longer texts are no 64-bit number, and Python refuses to read very long ones.
_LONGEST_INTEGER = 400
_BLANKS = "".join(map(chr, range(33)))
_SURE_LONG = 18
"""So many digits are a 64-bit number for certain."""


class Long(int):
    """An integer that Java holds in a `Long` although it would fit an `Integer`."""

    __slots__ = ()


_NUMBERS = frozenset([int, Long, float, Decimal])


def parse_int(text: str) -> int | None:
    """`Integer.parseInt`; None where it throws."""
    value = _parse(text)
    return value if value is not None and INT_MIN <= value <= INT_MAX else None


def _parse(text: str) -> int | None:
    if len(text) > _LONGEST_INTEGER or not _INTEGER.fullmatch(text):
        return None
    return int(text)


def to_number(value: Any) -> int | float | Decimal | None:
    """A number as it is, text as the number it spells, else None."""
    kind = type(value)
    if kind is not str:
        return value if kind in _NUMBERS else None
    if len(value) <= _SURE_LONG and value.isascii():
        if value.isdigit():
            return int(value)
        if value.replace(".", "", 1).isdigit():
            return float(value)
    whole = _parse(paid(value))
    if whole is not None and LONG_MIN <= whole <= LONG_MAX:
        return whole
    matched = _DOUBLE.fullmatch(value.strip(_BLANKS))
    if not matched:
        return None
    double = float(matched[1])
    return double if math.isfinite(double) else None


def to_int(value: int | float | Decimal) -> int:
    """`Number.intValue`: integers wrap, decimals are cut and saturate."""
    if isinstance(value, int):
        if INT_MIN <= value <= INT_MAX:
            return value if type(value) is int else int(value)
        return ((value & _INT_BITS) - INT_MIN & _INT_BITS) + INT_MIN
    return min(max(_cut(value), INT_MIN), INT_MAX)


def to_long(value: int | float | Decimal) -> int:
    """`Number.longValue`."""
    if isinstance(value, int):
        if LONG_MIN <= value <= LONG_MAX:
            return value if type(value) is int else int(value)
        return ((value & _LONG_BITS) - LONG_MIN & _LONG_BITS) + LONG_MIN
    return min(max(_cut(value), LONG_MIN), LONG_MAX)


def _cut(value: float | Decimal) -> int:
    """The whole part; of what is out of all bounds, only the sign counts."""
    if isinstance(value, Decimal) and value.adjusted() > _SURE_LONG + 1:
        return -(10**20) if value < 0 else 10**20
    return int(value)


def to_double(value: int | float | Decimal) -> float | None:
    """`Number.doubleValue`; None instead of an infinity, which JSON cannot hold."""
    try:
        double = float(value)
    except OverflowError:
        return None
    return double if math.isfinite(double) else None


def kind_of(value: Any) -> str:
    """The Java class of a JSON value, as far as functions distinguish classes ."""
    kind = type(value)
    if kind is int:
        if INT_MIN <= value <= INT_MAX:
            return "Integer"
        return "Long" if LONG_MIN <= value <= LONG_MAX else "BigInteger"
    if kind is float or kind is Decimal:
        return "Double"
    return kind.__name__


def is_int(value: Any) -> bool:
    """Whether Java would hold the value in an `Integer`."""
    return type(value) is int and INT_MIN <= value <= INT_MAX


def unmark(value: Any) -> Any:
    """Turn `Long` markers into plain integers, in place; gives the value back."""
    kind = type(value)
    if kind is not dict and kind is not list:
        return int(value) if kind is Long else value
    seen: set[int] = set()

    def visit(node: Any) -> Any:
        kind = type(node)
        if kind is Long:
            return int(node)
        if (kind is dict or kind is list) and id(node) not in seen:
            seen.add(id(node))
            for key, below in node.items() if kind is dict else enumerate(node):
                if (plain := visit(below)) is not below:
                    node[key] = plain
        return node

    return visit(value)
