"""Functions that our JMESPath has beyond the standard ones.

Null in gives null out. A value of a wrong type is an error of the event (TransformError), not null: a spec
that expects text must not quietly lose a number.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias

from idgraph import native
from idgraph.model import canonical
from idgraph.model.errors import SpecLimitError, TransformError
from transforms.spec.budget import FREE, limits_at_hand, paid, pay, pay_for_all
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import NONE, choice, is_, name, named
from transforms.spec.generation.nodes import call as code_call
from transforms.spec.jmespath.evaluators import Evaluate
from transforms.spec.jmespath.growth import check_spelled
from transforms.spec.jmespath.times import check_constants, epoch_ms
from transforms.spec.jolt.text import is_blank
from transforms.spec.pointers import epoch_milliseconds, strip_zeros

_MAX_NUMBER_TEXT = 400
_SURE_NUMBER = 15
"""Of so many characters, digits with or without a point are a number that a float holds exactly enough."""
_NO_DIGITS = re.compile(r"[^0-9]+")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?)")


Shorten: TypeAlias = Callable[[Code, ast.expr, ast.expr], ast.expr]
"""Takes the text, which may be evaluated several times, and the call for whatever else it may be."""


class CustomFunction(NamedTuple):
    """`call` gets the evaluated arguments. `most` is None for any number of arguments."""

    call: Callable[..., Any]
    least: int = 1
    most: int | None = 1
    check: Callable[[Sequence[Any]], None] | None = None
    """Gets the arguments that are literals (None for others); raises SpecError if one cannot be right."""
    shorten: Shorten | None = None
    """What `call` gives for one text of at most FREE characters, as code."""
    is_lazy: bool = False
    """Whether `call` gets functions in place of evaluated arguments, each of which takes the value at hand."""


def _text(value: Any, function: str) -> str:
    if type(value) is str:
        return value
    raise TransformError(f"{function}() expects text, not {_kind(value)}")


def _kind(value: Any) -> str:
    match value:
        case bool():
            return "a boolean"
        case int() | float() | Decimal():
            return "a number"
        case list():
            return "an array"
        case dict():
            return "an object"
    return "text" if isinstance(value, str) else "null"


def _of_text(name: str, apply: Callable[[str], Any]) -> CustomFunction:
    def call(value: Any) -> Any:
        if type(value) is str:
            return apply(value if len(value) <= FREE else paid(value))
        return None if value is None else apply(_text(value, name))

    return CustomFunction(call, shorten=lambda code, text, _call: code_call(code.bind(apply), text))


def _digits(text: str) -> str:
    return _NO_DIGITS.sub("", text)


@native.reference("to_number_exact")
def _to_number_exact(value: Any) -> Any:
    if value is None:
        return None
    if type(value) is str and len(value) <= _SURE_NUMBER and value.isascii():
        whole, point, fraction = value.partition(".")
        if whole.isdigit() and (fraction.isdigit() if point else True):
            return float(value) if point else int(value)
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return value
    matched = _NUMBER.fullmatch(paid(_text(value, "to_number_exact")).strip())
    if matched is None or len(matched[0]) > _MAX_NUMBER_TEXT:
        raise TransformError("to_number_exact() expects the text of a number")
    return int(matched[0]) if matched.lastindex is None else canonical.exact_number(matched[0])


def _split(separator: Any, text: Any) -> Any:
    if separator is None or text is None:
        return None
    if separator == "":
        raise TransformError("split() expects a separator that is not empty")
    most = limits_at_hand().max_nodes
    parts = paid(_text(text, "split")).split(_text(separator, "split"), most)
    pay(len(parts))
    if len(parts) > most:
        raise SpecLimitError(f"split() gives more than {most} parts")
    return parts


def first_non_null(*evaluators: Evaluate) -> Evaluate:
    """Stops at the first value there is."""

    def evaluate(value: Any) -> Any:
        for each in evaluators:
            found = each(value)
            if found is not None:
                return found
        return None

    return evaluate


def _try(attempt: Evaluate, otherwise: Evaluate | None = None) -> Evaluate:
    def evaluate(value: Any) -> Any:
        try:
            return attempt(value)
        except SpecLimitError:
            raise
        except TransformError:
            return None if otherwise is None else otherwise(value)

    return evaluate


def _hash(value: Any) -> Any:
    if value is None:
        return None
    pay_for_all(value)
    if type(value) is str:
        return sha256(value.encode("utf-8", "surrogatepass")).hexdigest()
    check_spelled(value)
    return sha256(canonical.encode(value)).hexdigest()


def _text_or_null(code: Code, text: ast.expr, _call: ast.expr) -> ast.expr:
    return choice(code_call(code.bind(str.strip), text), text, NONE)


def _read_time(code: Code, text: ast.expr, call: ast.expr) -> ast.expr:
    read = name(code.fresh("v"))
    milliseconds = named(read.id, code_call(code.bind(epoch_milliseconds), text))
    return choice(is_(milliseconds, NONE), call, read)


def _null_if_blank(value: Any) -> Any:
    return None if type(value) is str and is_blank(paid(value)) else value


CUSTOM_FUNCTIONS: dict[str, CustomFunction] = {
    "trim": _of_text("trim", str.strip),
    "lower": _of_text("lower", str.lower),
    "upper": _of_text("upper", str.upper),
    "digits": _of_text("digits", _digits),
    "strip_leading_zeros": _of_text("strip_leading_zeros", strip_zeros),
    "epoch_ms": CustomFunction(epoch_ms, most=3, check=check_constants, shorten=_read_time),
    "hash": CustomFunction(_hash),
    "to_number_exact": CustomFunction(_to_number_exact),
    "split": CustomFunction(_split, least=2, most=2),
    "first_non_null": CustomFunction(first_non_null, most=None, is_lazy=True),
    "try": CustomFunction(_try, most=2, is_lazy=True),
    "null_if_blank": CustomFunction(_null_if_blank, shorten=_text_or_null),
}
"""Standard names win: none of these may be one."""
