"""Jolt's functions of numbers. They depend on the Java number type that a value has."""

from __future__ import annotations

import math
from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

from idgraph import native
from transforms.spec.budget import pay
from transforms.spec.jolt.functions.calling import Function, after, for_each, on_array, short_text
from transforms.spec.jolt.scalars import (
    INT_MAX,
    INT_MIN,
    LONG_MAX,
    LONG_MIN,
    Long,
    is_int,
    kind_of,
    to_double,
    to_int,
    to_long,
    to_number,
)
from transforms.spec.jolt.views import MISSING

_HUGE = 1.7976931348623157e308
_ROUNDING = Context(prec=2000, rounding=ROUND_HALF_UP)
_MAX_DIGITS = 400
_DIGITS_A_STEP = 64
_SURE_INT = 9
"""So many digits are an `Integer` for certain."""
_SHORT_NUMBER = 18


def _extreme(values: Sequence[Any], highest: bool) -> Any:
    """The highest or lowest of the integers, of the longs and of the doubles are found apart, then compared
    by their whole part, integers first: so does Jolt."""
    pick = max if highest else min
    best: dict[str, Any] = {
        "Integer": INT_MIN if highest else INT_MAX,
        "Long": Long(LONG_MIN if highest else LONG_MAX),
        "Double": -_HUGE if highest else _HUGE,
    }
    found = False
    for value in values:
        number = to_number(value) if type(value) is str else value
        kind = kind_of(number)
        if kind in best:
            best[kind] = pick(best[kind], number)
            found = True
    if not found:
        return MISSING
    integer, long, double = (to_long(best[kind]) for kind in ("Integer", "Long", "Double"))
    if integer == pick(integer, long, double):
        return best["Integer"]
    return best["Long"] if long == pick(long, double) else best["Double"]


def _number_only(value: Any) -> Any:
    return value if to_number(value) is not None and type(value) is not str else MISSING


def _absolute(value: Any) -> Any:
    number = to_number(value)
    if number is None:
        return MISSING
    kind = kind_of(number)
    if kind == "BigInteger":
        return MISSING
    positive = -number if number < 0 else number
    if kind == "Integer":
        return to_int(positive)
    return Long(to_long(positive)) if kind == "Long" else abs(positive)


def _average(values: Sequence[Any]) -> Any:
    doubles = [to_double(number) for number in map(to_number, values) if number is not None]
    total = 0.0
    for double in doubles:
        total += double if double is not None else math.inf
    return _finite(total / len(doubles)) if doubles else MISSING


def _finite(value: float) -> Any:
    return value if math.isfinite(value) else MISSING


def _int_sum(values: Sequence[Any]) -> int:
    return to_int(sum(to_int(number) for number in map(to_number, values) if number is not None))


def _long_sum(values: Sequence[Any]) -> int:
    return Long(to_long(sum(to_long(number) for number in map(to_number, values) if number is not None)))


def _double_sum(values: Sequence[Any]) -> Any:
    total = 0.0
    for number in map(to_number, values):
        if number is not None:
            double = to_double(number)
            total += double if double is not None else math.inf
    return _finite(total)


def _subtract(kind: str) -> Function:
    def subtract(values: Sequence[Any]) -> Any:
        if len(values) != 2 or any(kind_of(value) != kind for value in values):
            return MISSING
        if kind == "Double":
            return _finite(float(values[0]) - float(values[1]))
        difference = values[0] - values[1]
        return to_int(difference) if kind == "Integer" else Long(to_long(difference))

    return on_array(subtract)


def _divide(values: Sequence[Any]) -> Any:
    if len(values) != 2:
        return MISSING
    numbers = [to_number(value) for value in values]
    if numbers[0] is None or numbers[1] is None:
        return MISSING
    numerator, denominator = to_double(numbers[0]), to_double(numbers[1])
    if numerator is None or not denominator:
        return MISSING
    return _finite(numerator / denominator)


def _divide_and_round(digits: int, values: list[Any]) -> Any:
    quotient = _divide(values)
    if quotient is MISSING or digits > _MAX_DIGITS:
        return quotient
    if digits < -_MAX_DIGITS:
        return 0.0
    pay(1 + abs(digits) // _DIGITS_A_STEP)
    return float(Decimal(quotient).quantize(Decimal(1).scaleb(-digits), context=_ROUNDING))


def _to_integer(value: Any) -> Any:
    number = to_number(value)
    return MISSING if number is None else to_int(number)


def _to_long(value: Any) -> Any:
    number = to_number(value)
    return MISSING if number is None else Long(to_long(number))


def _to_plain_long(value: Any) -> Any:
    number = to_number(value)
    return MISSING if number is None else to_long(number)


def _to_double(value: Any) -> Any:
    number = to_number(value)
    double = None if number is None else to_double(number)
    return MISSING if double is None else double


def _read_integer(text: str) -> Any:
    return int(text) if len(text) <= _SURE_INT and text.isascii() and text.isdigit() else _to_integer(text)


def _read_long(text: str) -> Any:
    if len(text) <= _SHORT_NUMBER and text.isascii() and text.isdigit():
        return int(text)
    return _to_plain_long(text)


@native.reference("read_double")
def _read_double(text: str) -> Any:
    if len(text) <= _SHORT_NUMBER and text.isascii() and text.replace(".", "", 1).isdigit():
        return float(text)
    return _to_double(text)


NUMERIC_FUNCTIONS: dict[str, Function] = {
    "min": on_array(lambda values: _extreme(values, highest=False), _number_only),
    "max": on_array(lambda values: _extreme(values, highest=True), _number_only),
    "abs": for_each(_absolute),
    "avg": on_array(_average),
    "intSum": on_array(_int_sum),
    "longSum": on_array(_long_sum),
    "doubleSum": on_array(_double_sum),
    "intSubtract": _subtract("Integer"),
    "longSubtract": _subtract("Long"),
    "doubleSubtract": _subtract("Double"),
    "divide": on_array(_divide),
    "divideAndRound": after(is_int, _divide_and_round),
    "toInteger": for_each(_to_integer)._replace(shorten=short_text(_read_integer)),
    "toLong": for_each(_to_long)._replace(shorten=short_text(_read_long)),
    "toDouble": for_each(_to_double)._replace(shorten=short_text(_read_double)),
}

PLAIN_TO_LONG = for_each(_to_plain_long)
"""`toLong` where nothing that comes later can determine a `Long` from another number."""

LONG_MAKERS = frozenset({"toLong", "longSum", "longSubtract", "abs", "min", "max"})
"""Functions whose result may be a `Long` marker."""
