"""Calls of JMESPath functions: our own directly, the standard ones by the library.

The library does not know two kinds of number: `Decimal`, which no float can hold, and `Long`, which Jolt's `toLong`
makes. Arithmetic on decimals is exact as far as possible: a float among them counts as the decimal that it is
written as. For all other values the result is the library's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from decimal import Context, Decimal
from math import isfinite
from typing import Any, TypeVar

from jmespath.exceptions import JMESPathError
from jmespath.functions import REVERSE_TYPES_MAP, TYPES_MAP, Functions
from jmespath.visitor import _Expression

from idgraph.model.canonical import exact_number
from idgraph.model.errors import SpecError, TransformError
from idgraph.model.text import name_hint
from transforms.spec.budget import check_length, paid, pay_for, pay_for_all
from transforms.spec.jmespath.evaluators import equal
from transforms.spec.jmespath.functions import CUSTOM_FUNCTIONS, CustomFunction, first_non_null
from transforms.spec.jmespath.growth import check_spelled

_NUMBERS = ("Decimal", "Long")
# Wide enough for a sum of any two decimals that JSON brings here (see idgraph.model.canonical).
_EXACT = Context(prec=13_000, Emax=20_000, Emin=-20_000)
_QUOTIENT = Context(prec=34, Emax=20_000, Emin=-20_000)
"""Digits of a decimal128: an average need not end."""


_JSON_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_MOST_DIGITS = 4000
"""Digits of an integer that Python reads; a longer one is out of the range of a double."""


_Method = TypeVar("_Method", bound=Callable[..., Any])


def _takes(*types: str) -> Callable[[_Method], _Method]:
    """Marks a function for the library's table, as its own decorator does: the types of each argument."""

    def mark(method: _Method) -> _Method:
        setattr(method, "signature", tuple({"types": each.split()} for each in types))  # noqa: B010 - functions declare no attributes
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
        """A text must be a number of JSON: Python reads `12_34`, digits of other scripts and `Infinity` too."""
        if type(value) is str:
            matched = _JSON_NUMBER.fullmatch(value)
            if matched is None:
                return None
            is_whole = matched.lastindex is None and len(value) <= _MOST_DIGITS
            return int(value) if is_whole else float(value)
        return value if isinstance(value, Decimal) else super()._func_to_number(value)

    @_takes("array string", "")
    def _func_contains(self, subject: Any, search: Any) -> bool:
        if type(subject) is list:
            return any(equal(each, search) for each in subject)
        return bool(super()._func_contains(subject, search))

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


_STANDARD = StandardFunctions()
_STANDARD_TABLE: dict[str, dict[str, Any]] = StandardFunctions.FUNCTION_TABLE


class _Caller:
    """Lets the library's functions call a compiled expression (`sort_by(@, &age)`)."""

    def visit(self, evaluate: Callable[[Any], Any], value: Any) -> Any:
        return evaluate(value)


_CALLER = _Caller()


def compile_call(
    name: str, arguments: list[tuple[Callable[[Any], Any], bool]], constants: Sequence[Any]
) -> Callable[[Any], Any]:
    """`arguments` are compiled expressions, each with whether it is passed as such (`&age`); `constants`
    are their values where they are literals, else None.

    Raises SpecError for an unknown function, a wrong number of arguments, or a constant that cannot be right.
    """
    custom = CUSTOM_FUNCTIONS.get(name)
    if custom is not None:
        call = _custom_call(name, custom, arguments)
        if custom.check is not None:
            custom.check(constants)
        return call
    known = _STANDARD_TABLE.get(name)
    if known is None:
        names = [*CUSTOM_FUNCTIONS, *_STANDARD_TABLE]
        raise SpecError(f"there is no function '{name}'", hint=name_hint(name, names))
    signature = known["signature"]
    variadic = bool(signature) and bool(signature[-1].get("variadic"))
    _check_count(name, len(arguments), len(signature), None if variadic else len(signature))
    for position, (_, is_reference) in enumerate(arguments):
        if is_reference and "expref" not in signature[min(position, len(signature) - 1)]["types"]:
            raise SpecError(f"argument {position + 1} of {name}() takes no '&'")
    if name == "not_null" and not any(is_reference for _, is_reference in arguments):
        return first_non_null(*[evaluate for evaluate, _ in arguments])
    return _standard_call(name, arguments)


def _check_count(name: str, count: int, least: int, most: int | None) -> None:
    if count < least or (most is not None and count > most):
        wanted = f"{least}" if most == least else f"{least} or more"
        raise SpecError(f"{name}() takes {wanted} argument{'' if wanted == '1' else 's'}, found {count}")


def _custom_call(
    name: str, function: CustomFunction, arguments: list[tuple[Callable[[Any], Any], bool]]
) -> Callable[[Any], Any]:
    _check_count(name, len(arguments), function.least, function.most)
    if any(is_reference for _, is_reference in arguments):
        raise SpecError(f"{name}() takes no '&' argument")
    evaluators = [evaluate for evaluate, _ in arguments]
    call = function.call
    if function.is_lazy:
        made: Callable[[Any], Any] = call(*evaluators)
        return made
    if len(evaluators) == 1:
        only = evaluators[0]
        return lambda value: call(only(value))
    return lambda value: call(*[evaluate(value) for evaluate in evaluators])


_DEEP = frozenset({"to_string", "contains"})
"""Functions that read all of their arguments: the others read no more than the elements of an array."""


def _standard_call(name: str, arguments: list[tuple[Callable[[Any], Any], bool]]) -> Callable[[Any], Any]:
    read = pay_for_all if name in _DEEP else pay_for

    def evaluate(value: Any) -> Any:
        resolved = [
            _Expression(argument, _CALLER) if is_reference else argument(value)
            for argument, is_reference in arguments
        ]
        for each in resolved:
            if type(each) is not _Expression:
                read(each)
        try:
            result = _STANDARD.call_function(name, resolved)
        except (JMESPathError, TypeError, ValueError):
            # The library's message quotes the value; some of its functions do not look at all of their arguments.
            raise TransformError(f"{name}() got an argument of a wrong type") from None
        # JSON cannot hold what overflows, nor what `to_number` makes of the text `nan`.
        return None if type(result) is float and not isfinite(result) else result

    return evaluate
