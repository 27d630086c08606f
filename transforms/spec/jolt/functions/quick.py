"""Short ways for functions: code for arguments as they mostly are, in place of a call.

Each takes the code in the making, the arguments, the variable for the result, and the long way, which is right for all
arguments (see `calling.Shorten`). Texts above FREE characters are paid for in steps: they take the long way.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

from transforms.spec.budget import FREE
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
from transforms.spec.jolt.functions.separators import plain_separator
from transforms.spec.jolt.views import MISSING

_FEW = 8
"""So many texts may be put together before their length is looked at."""
_SHORT = 10_000
_SMALL = 2**30


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


def short_spelling(code: Code, arguments: list[ast.expr], made: str, long_way: Block) -> Block:
    """`toString` of a text: the text."""
    if len(arguments) != 1 or isinstance(arguments[0], ast.Constant):
        return long_way
    is_text = is_(call(code.bind(type), arguments[0]), code.bind(str))
    return when(is_text, [assign(made, arguments[0])], long_way)


def short_size(code: Code, arguments: list[ast.expr], made: str, long_way: Block) -> Block:
    """`size` of an array, or of nothing."""
    if len(arguments) != 1 or isinstance(arguments[0], ast.Constant):
        return long_way
    is_list = is_(call(code.bind(type), arguments[0]), code.bind(list))
    missing = code.bind(MISSING)
    of_others = when(is_(arguments[0], missing), [assign(made, missing)], long_way)
    return when(is_list, [assign(made, call(code.bind(len), arguments[0]))], of_others)


def short_sum(code: Code, arguments: list[ast.expr], made: str, long_way: Block) -> Block:
    """`intSum` of two integers that are so small that the sum is one of Java's too."""
    if len(arguments) != 2:
        return long_way
    tests: list[ast.expr] = []
    for argument in arguments:
        tests.append(is_(call(code.bind(type), argument), code.bind(int)))
        tests += [less(constant(-_SMALL), argument), less(argument, constant(_SMALL))]
    return when(reduce(both, tests), [assign(made, plus(*arguments))], long_way)


def _is_short(code: Code, text: ast.expr) -> ast.expr:
    is_text = is_(call(code.bind(type), text), code.bind(str))
    return both(is_text, less(call(code.bind(len), text), constant(FREE + 1)))


def _text(argument: ast.expr) -> str | None:
    """A text that stands in the spec."""
    return argument.value if isinstance(argument, ast.Constant) and isinstance(argument.value, str) else None
