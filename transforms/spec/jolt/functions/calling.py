"""The arguments of Jolt's functions, and inline code for the common ones.

A function gets the list of its arguments and returns a value, or MISSING for "no value": then the next
alternative of the spec is tried, or nothing is set. Functions never raise for what an event holds, except
TransformError for a limit.

A `Shorten` takes the function being generated, the arguments, the variable for the result, and the full call, which is
right for all arguments. A text above FREE characters charges the budget, so it takes the full call.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, NamedTuple, TypeAlias

from transforms.spec.budget import FREE, paid, pay_for
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import (
    Block,
    assign,
    both,
    call,
    constant,
    equals,
    is_,
    item,
    less,
    name,
    plus,
    when,
)
from transforms.spec.jolt.functions.patterns import plain_separator
from transforms.spec.jolt.views import MISSING

_FEW = 8
"""So many texts may be put together before their length is looked at."""
_SHORT = 10_000


def short_text(apply: Callable[..., Any], *constants: Any) -> Callable[..., Block]:
    """A function of one text, and of constants, that gives a scalar."""

    def shorten(code: Code, arguments: list[ast.expr], made: str, long_way: Block) -> Block:
        if len(arguments) != 1:
            return long_way
        text = arguments[0]
        applied = call(code.bind(apply), text, *map(code.bind, constants))
        return when(_is_short(code, text), [assign(made, applied)], long_way)

    return shorten


def short_concat(code: Code, arguments: list[ast.expr], made: str, long_way: Block) -> Block:
    """`concat` of some texts."""
    if not 2 <= len(arguments) <= _FEW:
        return long_way
    return _together(code, arguments, arguments, made, long_way)


def short_join(code: Code, arguments: list[ast.expr], made: str, long_way: Block) -> Block:
    """`join` of some texts, of which none is empty, by a separator of the spec."""
    separator = _text(arguments[0])
    if separator is None or not 3 <= len(arguments) <= _FEW or len(separator) > _SHORT:
        return long_way
    _, first, *others = arguments
    pieces = [first]
    for other in others:
        pieces += [constant(separator), other] if separator else [other]
    return _together(code, arguments[1:], pieces, made, long_way, may_be_empty=False)


def _together(
    code: Code,
    arguments: Sequence[ast.expr],
    pieces: Sequence[ast.expr],
    made: str,
    long_way: Block,
    may_be_empty: bool = True,
) -> Block:
    tests: list[ast.expr] = []
    for argument in arguments:
        if not isinstance(argument, ast.Constant):
            tests += [] if may_be_empty else [argument]
            tests.append(is_(call(code.bind(type), argument), code.bind(str)))
        elif not isinstance(argument.value, str) or not (argument.value or may_be_empty):
            return long_way
    if not tests:
        return long_way
    joined: Block = [assign(made, reduce(plus, pieces))]
    joined += when(less(constant(FREE), call(code.bind(len), name(made))), long_way)
    return when(reduce(both, tests), joined, long_way)


def short_split(code: Code, arguments: list[ast.expr], made: str, long_way: Block) -> Block:
    """`split` of one text by a separator of the spec that is no pattern."""
    separator = _text(arguments[0])
    plain = plain_separator(separator) if len(arguments) == 2 and separator is not None else None
    if not plain:
        return long_way
    parts = call(code.bind(str.split), arguments[1], constant(plain))
    split: Block = [assign(made, parts)]
    split += when(equals(item(name(made), constant(-1)), constant("")), long_way)
    text, missing, of_others = arguments[1], code.bind(MISSING), long_way
    if not isinstance(text, ast.Constant):
        of_others = when(is_(text, missing), [assign(made, missing)], long_way)
    return when(_is_short(code, text), split, of_others)


def _is_short(code: Code, text: ast.expr) -> ast.expr:
    is_text = is_(call(code.bind(type), text), code.bind(str))
    return both(is_text, less(call(code.bind(len), text), constant(FREE + 1)))


def _text(argument: ast.expr) -> str | None:
    """A text that stands in the spec."""
    return argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else None


Shorten: TypeAlias = Callable[[Code, list[ast.expr], str, Block], Block]
"""Takes the arguments, which may be evaluated several times, the variable that gets the result, and the long way to it
that any arguments may take; gives code that takes the long way only where it must."""


class Function(NamedTuple):
    """`call` takes the arguments, `one` a single one (it is what `=name` calls). No argument, no value."""

    call: Callable[[Sequence[Any]], Any]
    one: Callable[[Any], Any]
    shorten: Shorten | None = None
    """Code for what the arguments mostly are. Its result is a scalar, or holds nothing but scalars."""
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
