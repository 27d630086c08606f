"""Functions that our JMESPath has beyond the standard ones. `epoch_ms` reads the time formats and zones of sources.

Null in gives null out. A value of a wrong type is an error of the event (TransformError), not null: a spec
that expects text must not quietly lose a number.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from decimal import Decimal
from functools import cache, lru_cache
from hashlib import sha256
from typing import Any, NamedTuple, TypeAlias
from zoneinfo import ZoneInfo, available_timezones

from idgraph import native
from idgraph.model import canonical
from idgraph.model.errors import SpecError, SpecLimitError, TransformError
from idgraph.model.text import name_hint
from transforms.spec.budget import FREE, limits_at_hand, paid, pay, pay_for_all
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import NONE, choice, is_, name, named
from transforms.spec.generation.nodes import call as code_call
from transforms.spec.jmespath.evaluators import Evaluate
from transforms.spec.jmespath.growth import check_spelled
from transforms.spec.jolt.scalars import is_blank
from transforms.spec.pointers import epoch_milliseconds, found, strip_zeros

_UNITS = {"seconds": Decimal(1000), "milliseconds": Decimal(1), "microseconds": Decimal("0.001")}
_DIRECTIVES = frozenset("YymdBbHIMSfpzjaA%")
_LONGEST = 100  # characters of a time and of a format
_OFFSET = re.compile(r"([+-])([0-9]{2}):([0-9]{2})")
_NUMBER_TEXT = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,18})?")
_NO_FORMAT = "epoch_ms() expects a format as second argument, such as '%d.%m.%Y %H:%M'"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)


def epoch_ms(value: Any, style: Any = None, zone: Any = None) -> int | None:
    """Null for null. `style` is a unit or a format of `strptime`; None means RFC 3339 with an offset.
    `zone` is an IANA name or an offset, for times without one. Raises TransformError for anything else."""
    if value is None:
        return None
    if style is None:
        return _rfc3339(value)
    if type(style) is not str:
        raise TransformError("epoch_ms() expects text as its second argument")
    if style in _UNITS:
        return _counted(value, style)
    if type(value) is not str or len(value) > _LONGEST:
        raise TransformError(f"epoch_ms() expects text of at most {_LONGEST} characters for a format")
    try:
        read = datetime.strptime(value, _checked_format(style))
        if read.tzinfo is None:
            read = read.replace(tzinfo=_known_zone(zone))
        return (read - _EPOCH) // _MILLISECOND
    except SpecError:
        # Its message quotes what it found, which here may come from the event.
        raise TransformError("epoch_ms() got a format or a zone that it cannot read") from None
    except (ValueError, OverflowError):
        raise TransformError("epoch_ms() expects a time in the format that is given") from None


def check_constants(constants: Sequence[Any]) -> None:
    """Raises SpecError for a format or zone that no event can change; None stands for what an event says."""
    style = constants[1] if len(constants) > 1 else None
    zone = constants[2] if len(constants) > 2 else None
    if style is not None and type(style) is not str:
        raise SpecError(_NO_FORMAT)
    if style is not None and style not in _UNITS:
        has_offset = "%z" in _checked_format(style)
        if len(constants) < 3 and not has_offset:
            raise SpecError("epoch_ms() needs a zone, because the format has no offset (%z)")
    if zone is not None:
        _zone(zone)


def _rfc3339(value: Any) -> int:
    milliseconds: int | None = epoch_milliseconds(value) if type(value) is str else None
    if milliseconds is None:
        raise TransformError("epoch_ms() expects an RFC 3339 time with an offset")
    return milliseconds


def _counted(value: Any, unit: str) -> int:
    if isinstance(value, str) and _NUMBER_TEXT.fullmatch(value):
        value = Decimal(value)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TransformError(f"epoch_ms() expects a number of {unit}")
    exact = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if abs(exact) > 10**18:
        raise TransformError(f"epoch_ms() got a number of {unit} that is out of range")
    return int((exact * _UNITS[unit]).to_integral_value(rounding="ROUND_FLOOR"))


@lru_cache(maxsize=256)
def _checked_format(style: Any) -> str:
    if not isinstance(style, str) or not style or len(style) > _LONGEST:
        raise SpecError(_NO_FORMAT)
    directives = re.findall(r"%(.?)", style, re.DOTALL)
    unknown = [each for each in directives if each not in _DIRECTIVES or not each]
    if unknown or not directives:
        known = ", ".join(f"%{each}" for each in sorted(_DIRECTIVES))
        units = ", ".join(_UNITS)
        raise SpecError(
            f"epoch_ms() cannot read the format {found(style)}; it knows {known}, or one of {units}",
            hint=name_hint(style, _UNITS),
        )
    if len(set(directives) - {"%"}) < len([each for each in directives if each != "%"]):
        raise SpecError(f"a directive stands twice in the format {found(style)}")
    return style


def _zone(zone: Any) -> tzinfo:
    if zone is None:
        raise SpecError("epoch_ms() needs a zone for a time without an offset")
    if isinstance(zone, str) and len(zone) <= _LONGEST and (known := _zone_of(zone)) is not None:
        return known
    raise SpecError(
        f"there is no time zone {found(zone)}; expected one like 'Europe/Berlin' or '+02:00'",
        hint=name_hint(zone, _zones()) if isinstance(zone, str) else None,
    )


def _known_zone(zone: Any) -> tzinfo:
    """As `_zone`, for what an event says: no time is spent on a message that nobody may see."""
    known = _zone_of(zone) if isinstance(zone, str) and len(zone) <= _LONGEST else None
    if known is None:
        raise TransformError("epoch_ms() needs a zone that it knows, or a time with an offset")
    return known


@lru_cache(maxsize=256)
def _zone_of(zone: str) -> tzinfo | None:
    matched = _OFFSET.fullmatch(zone)
    if matched:
        away = timedelta(hours=int(matched[2]), minutes=int(matched[3]))
        if away < timedelta(hours=24):
            return timezone(-away if matched[1] == "-" else away)
    return ZoneInfo(zone) if zone in _zones() else None


@cache
def _zones() -> frozenset[str]:
    # It is read from hundreds of files.
    return frozenset(available_timezones())


_MAX_NUMBER_TEXT = 400
_SURE_NUMBER = 15
"""Up to so many characters, digits with or without a point are a number that a float holds exactly enough."""
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
    """The result of `call` for one text of at most FREE characters, as code."""
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
