"""How Jolt's functions take their arguments.

A function gets the list of its arguments and gives a value, or MISSING for "no value": then the next
alternative of the spec is tried, or nothing is set. Functions never raise for what an event holds, except
TransformError for a limit.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeAlias

from transforms.spec.budget import paid, pay_for
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import Block
from transforms.spec.jolt.functions.quick import short_text
from transforms.spec.jolt.views import MISSING

Shorten: TypeAlias = Callable[[Code, list[ast.expr], str, Block], Block]
"""Takes the arguments, which may be evaluated several times, the variable that gets the result, and the long way to it
that any arguments may take; gives code that takes the long way only where it must."""


class Function(NamedTuple):
    """`call` takes the arguments, `one` a single one (it is what `=name` calls). No argument, no value."""

    call: Callable[[Sequence[Any]], Any]
    one: Callable[[Any], Any]
    shorten: Shorten | None = None
    """Code for what the arguments mostly are. What it makes is a scalar, or holds nothing but scalars."""
    check: Callable[[Any], None] | None = None
    """Raises SpecError for a first argument of the spec that cannot be right."""


def of_arguments(call: Callable[[Sequence[Any]], Any]) -> Function:
    """A function that takes its arguments as they are."""
    return Function(call, lambda value: call((value,)))


def for_each(apply: Callable[[Any], Any]) -> Function:
    """A function of one value; of several values, or of an array, it gives an array, in which an element
    without result stays as it is."""

    def many(values: Sequence[Any]) -> list[Any]:
        results = []
        for value in values:
            result = apply(value)
            results.append(value if result is MISSING else result)
        return results

    return on_array(many, apply)


def of_text(apply: Callable[..., Any], *constants: Any) -> Function:
    """Like `for_each`, for a function of strings, which gets these constants too; other values have no result."""

    def each(value: Any) -> Any:
        return apply(paid(value), *constants) if type(value) is str else MISSING

    function = for_each(each)

    def one(value: Any) -> Any:
        return each(value) if type(value) is str else function.one(value)

    return Function(function.call, one, short_text(apply, *constants))


def on_array(many: Callable[[Any], Any], single: Callable[[Any], Any] | None = None) -> Function:
    """A function of an array, or of several arguments; `single` is for one argument that is no array."""

    def one(value: Any) -> Any:
        if type(value) is list:
            pay_for(value)
            return many(value) if value else MISSING
        return MISSING if value is None or single is None else single(value)

    def call(arguments: Sequence[Any]) -> Any:
        if len(arguments) != 1:
            return many(arguments) if arguments else MISSING
        return one(arguments[0])

    return Function(call, one)


def after(
    accepts: Callable[[Any], bool],
    many: Callable[[Any, Any], Any],
    each: Callable[[Any, Any], Any] | None = None,
) -> Function:
    """A function whose first argument says how, and the others (or one array) what.

    `each` is for one other argument that is no array.
    """

    def call(arguments: Sequence[Any]) -> Any:
        if len(arguments) == 1 and type(arguments[0]) is list:
            arguments = arguments[0]
        if len(arguments) < 2 or not accepts(arguments[0]):
            return MISSING
        first = arguments[0]
        if len(arguments) > 2:
            return many(first, list(arguments[1:]))
        if type(arguments[1]) is list:
            pay_for(arguments[1])
            return many(first, arguments[1])
        return MISSING if each is None else each(first, arguments[1])

    return of_arguments(call)


def is_text(value: Any) -> bool:
    """Whether the value is a string."""
    return type(value) is str
