"""The standard functions: the library's, for numbers that it does not know.

A decimal that no float can hold is a `Decimal` here, and what Jolt's `toLong` makes is a `Long`. Both are
numbers. Arithmetic on decimals is exact as far as it can be: a float among them counts as the decimal that
it is written as. For all other values the result is the library's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Context, Decimal
from typing import Any, TypeVar

from jmespath.functions import REVERSE_TYPES_MAP, TYPES_MAP, Functions

from idgraph.model.canonical import exact_number
from transforms.spec.budget import check_length, paid
from transforms.spec.jmespath.growth import check_spelled

_NUMBERS = ("Decimal", "Long")
# Wide enough for a sum of any two decimals that JSON brings here (see idgraph.model.canonical).
_EXACT = Context(prec=13_000, Emax=20_000, Emin=-20_000)
_QUOTIENT = Context(prec=34, Emax=20_000, Emin=-20_000)
"""Of a decimal128: an average need not end."""


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _takes(*types: str) -> Callable[[_Method], _Method]:
    """Marks a function for the library's table, as its own decorator does: one type for each argument."""

    def mark(method: _Method) -> _Method:
        setattr(method, "signature", tuple({"types": [each] if each else []} for each in types))  # noqa: B010 - functions declare no attributes
        return method

    return mark


class StandardFunctions(Functions):  # type: ignore[misc]
    """All standard functions; numbers may be `Decimal`."""

    @_takes("array-number")
    def _func_sum(self, numbers: list[Any]) -> Any:
        return _sum(numbers) if _has_decimal(numbers) else sum(numbers)

    @_takes("array-number")
    def _func_avg(self, numbers: list[Any]) -> Any:
        if not numbers:
            return None
        if not _has_decimal(numbers):
            return sum(numbers) / len(numbers)
        return exact_number(str(_QUOTIENT.divide(_decimal(_sum(numbers)), Decimal(len(numbers)))))

    @_takes("string", "array-string")
    def _func_join(self, separator: str, texts: list[str]) -> Any:
        check_length(sum(map(len, texts)) + len(separator) * len(texts))
        return paid(separator.join(texts))

    @_takes("number")
    def _func_abs(self, number: Any) -> Any:
        # abs() of a Decimal rounds.
        return number.copy_abs() if isinstance(number, Decimal) else abs(number)

    @_takes("")
    def _func_to_string(self, value: Any) -> str:
        if isinstance(value, str):
            return value
        if isinstance(value, Decimal):
            return str(value)
        if isinstance(value, dict | list):
            check_spelled(value)
            if _holds_decimal(value):
                return _spelled(value)
        return json.dumps(value, separators=(",", ":"))

    @_takes("")
    def _func_type(self, value: Any) -> Any:
        return "number" if isinstance(value, Decimal) else super()._func_type(value)

    @_takes("")
    def _func_to_number(self, value: Any) -> Any:
        return value if isinstance(value, Decimal) else super()._func_to_number(value)

    def _get_allowed_pytypes(self, types: list[str]) -> tuple[list[str], list[tuple[str, ...]]]:
        allowed: list[str] = []
        elements: list[tuple[str, ...]] = []
        for each in types:
            kind, _, element = each.partition("-")
            allowed += _python_types(kind)
            if element:
                elements.append(_python_types(element))
        return allowed, elements

    def _convert_to_jmespath_type(self, name: str) -> str:
        return "number" if name in _NUMBERS else TYPES_MAP.get(name, "unknown")


def _python_types(kind: str) -> tuple[str, ...]:
    names: tuple[str, ...] = REVERSE_TYPES_MAP[kind]
    return names + _NUMBERS if kind == "number" else names


def _has_decimal(numbers: list[Any]) -> bool:
    return any(isinstance(number, Decimal) for number in numbers)


def _sum(numbers: list[Any]) -> Any:
    total = Decimal(0)
    for number in numbers:
        total = _EXACT.add(total, _decimal(number))
    return exact_number(str(total))


def _decimal(number: Any) -> Decimal:
    return Decimal(repr(number)) if isinstance(number, float) else Decimal(number)


def _holds_decimal(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(_holds_decimal, value.values() if isinstance(value, dict) else value))
    return isinstance(value, Decimal)


def _spelled(value: Any) -> str:
    """As `json.dumps`, with every digit of decimals."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{json.dumps(key)}:{_spelled(below)}" for key, below in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_spelled, value)) + "]"
    return str(value) if isinstance(value, Decimal) else json.dumps(value)
