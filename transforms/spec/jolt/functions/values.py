"""Jolt's functions of any value, of arrays and objects."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from transforms.spec.budget import paid, pay_for, pay_for_all
from transforms.spec.jolt.functions.calling import Function, after, for_each, of_arguments, of_text, on_array
from transforms.spec.jolt.functions.quick import short_size, short_spelling
from transforms.spec.jolt.numbers import is_int, kind_of
from transforms.spec.jolt.text import length, sort_key, text_of
from transforms.spec.jolt.views import MISSING
from transforms.spec.pointers import epoch_milliseconds, strip_zeros

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
    "toString": for_each(text_of)._replace(shorten=short_spelling),
    "size": Function(_size, _size_of, short_size),
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
