"""Jolt's functions of strings, arrays, objects and any value."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from transforms.spec.budget import check_length, paid, pay_for, pay_for_all
from transforms.spec.jolt.functions.calling import (
    Function,
    after,
    for_each,
    is_text,
    of_arguments,
    of_text,
    on_array,
    short_concat,
    short_join,
    short_split,
)
from transforms.spec.jolt.functions.patterns import check_separator, split
from transforms.spec.jolt.scalars import is_int, kind_of, length, sort_key, text_of
from transforms.spec.jolt.views import MISSING
from transforms.spec.pointers import epoch_milliseconds, strip_zeros

_BLANKS = "".join(map(chr, range(33)))
_WIDEST_PAD = 500


def _concat(values: Sequence[Any]) -> str:
    return _bounded(
        [value if type(value) is str else text_of(value) for value in values if value is not None]
    )


def _join(separator: str, values: list[Any]) -> str:
    pieces: list[str] = []
    for position, value in enumerate(values):
        text = value if type(value) is str else "" if value is None else text_of(value)
        if text:
            pieces.append(text)
            # A separator follows even if only empty values do: so does Jolt.
            if position < len(values) - 1:
                pieces.append(separator)
    return _bounded(pieces)


def _bounded(pieces: list[str]) -> str:
    check_length(sum(map(len, pieces)))
    return paid("".join(pieces))


def _split(separator: str, values: list[Any]) -> list[Any]:
    return [_split_text(separator, value) if type(value) is str else value for value in values]


def _split_one(separator: str, value: Any) -> Any:
    return _split_text(separator, value) if type(value) is str else MISSING


def _split_text(separator: str, text: str) -> Any:
    parts = split(separator, paid(text))
    pay_for(parts)
    return parts


def _substring(arguments: Sequence[Any]) -> Any:
    if len(arguments) != 3:
        return MISSING
    text, start, end = arguments
    if type(text) is not str or not is_int(start) or not is_int(end):
        return MISSING
    if not 0 <= start < end <= length(paid(text)):
        return MISSING
    if len(text) == length(text):
        return text[start:end]
    units = text.encode("utf-16-le", "surrogatepass")
    return units[2 * start : 2 * end].decode("utf-16-le", "replace")


def _pad(left: bool) -> Function:
    def pad(text: str, arguments: list[Any]) -> Any:
        if len(arguments) < 2:
            return MISSING
        width, filler = arguments[0], arguments[1]
        if not is_int(width) or type(filler) is not str or len(filler) != 1 or not 0 < width <= _WIDEST_PAD:
            return MISSING
        padding = filler * (width - length(paid(text)))
        return padding + text if left else text + padding

    return after(is_text, pad)


TEXT_FUNCTIONS: dict[str, Function] = {
    "toLower": of_text(str.lower),
    "toUpper": of_text(str.upper),
    "trim": of_text(str.strip, _BLANKS),
    "concat": on_array(_concat)._replace(shorten=short_concat),
    "join": after(is_text, _join)._replace(shorten=short_join),
    "split": after(is_text, _split, _split_one)._replace(shorten=short_split, check=check_separator),
    "substring": on_array(_substring),
    "leftPad": _pad(left=True),
    "rightPad": _pad(left=False),
}


EXTRA_FUNCTIONS: dict[str, Function] = {
    "epochMs": of_text(epoch_milliseconds, MISSING),
    "stripLeadingZeros": of_text(strip_zeros),
}


_LONGEST_BOOLEAN = len("false")


def _to_boolean(value: Any) -> Any:
    if type(value) is bool:
        return value
    if type(value) is not str or len(value) > _LONGEST_BOOLEAN:
        return MISSING
    text = value.lower()
    return text == "true" if text in ("true", "false") else MISSING


def _size(arguments: Sequence[Any]) -> Any:
    if len(arguments) != 1:
        return len(arguments) if arguments else MISSING
    return _size_of(arguments[0])


def _size_of(value: Any) -> Any:
    kind = type(value)
    if kind is list or kind is dict:
        return len(value)
    return length(paid(value)) if kind is str else MISSING


def _squash_nulls(value: Any) -> Any:
    if type(value) is list:
        value[:] = [element for element in value if element is not None]
    elif type(value) is dict:
        for key in [key for key, below in value.items() if below is None]:
            del value[key]
    return value


def _squash_all_nulls(value: Any) -> Any:
    pay_for(value)
    _squash_nulls(value)
    below = value.values() if type(value) is dict else value if type(value) is list else ()
    for part in below:
        _squash_all_nulls(part)
    return value


def _squashing(squash: Callable[[Any], Any]) -> Function:
    """Nulls are squashed in place; several arguments are one array, which Jolt cannot shorten."""

    def call(arguments: Sequence[Any]) -> Any:
        if len(arguments) == 1:
            only = arguments[0]
            pay_for(only)
            return MISSING if only is None or only == [] else squash(only)
        if not arguments or any(argument is None for argument in arguments):
            return MISSING
        return squash(list(arguments))

    return of_arguments(call)


def _squash_duplicates(values: Any) -> Any:
    if type(values) is not list:
        return values
    pay_for_all(values)
    distinct: dict[Hashable, Any] = {}
    for value in values:
        distinct.setdefault(_identity(value), value)
    return list(distinct.values())


def _identity(value: Any) -> Hashable:
    """Equal for values that Java finds equal: 1, 1.0 and true are three values."""
    kind = kind_of(value)
    if kind == "dict":
        return kind, frozenset((key, _identity(below)) for key, below in value.items())
    if kind == "list":
        return kind, tuple(map(_identity, value))
    return kind, repr(value) if kind == "Double" else value


def _sorted(values: Sequence[Any]) -> Any:
    kinds = {kind_of(value) for value in values}
    if len(values) == 1:
        return list(values)
    if len(kinds) != 1:
        return MISSING
    kind = kinds.pop()
    if kind == "str":
        return sorted(values, key=sort_key)
    return sorted(values) if kind in ("Integer", "Long", "BigInteger", "Double", "bool") else MISSING


def _element_at(index: int, values: list[Any]) -> Any:
    return values[index] if 0 <= index < len(values) else MISSING


def _same(value: Any) -> Any:
    return value


VALUE_FUNCTIONS: dict[str, Function] = {
    "toBoolean": for_each(_to_boolean),
    "toString": for_each(text_of),
    "size": Function(_size, _size_of),
    "squashNulls": _squashing(_squash_nulls),
    "recursivelySquashNulls": _squashing(_squash_all_nulls),
    "squashDuplicates": on_array(lambda values: _squash_duplicates(list(values)), _same),
    "noop": of_arguments(lambda _arguments: MISSING),
    "isPresent": of_arguments(lambda arguments: arguments[0] if arguments else MISSING),
    "notNull": of_arguments(
        lambda arguments: arguments[0] if arguments and arguments[0] is not None else MISSING
    ),
    "isNull": of_arguments(lambda arguments: None if arguments and arguments[0] is None else MISSING),
    "firstElement": on_array(lambda values: values[0]),
    "lastElement": on_array(lambda values: values[-1]),
    "elementAt": after(is_int, _element_at),
    "toList": on_array(
        lambda values: values if type(values) is list else list(values), lambda value: [value]
    ),
    "sort": on_array(_sorted, _same),
}

SQUASHERS = frozenset({"squashNulls", "recursivelySquashNulls"})
"""Functions that change their argument in place."""
