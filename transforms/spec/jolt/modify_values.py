"""The right side of a `modify-*` key: alternatives, the first of which that has a value is taken.

`"text"` and other JSON values stand for themselves, `@(1,a)` for what is found in the value at hand, `^a.b`
for what is found in the context, `=name` and `=name(a,b)` for what a function makes of them.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from idgraph.model.errors import SpecError
from idgraph.model.text import name_hint
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import Block, assign, call, constant, name, new_tuple
from transforms.spec.jolt.elements import Transpose, parse_path
from transforms.spec.jolt.functions import (
    BLIND_TO_LONGS,
    FUNCTIONS,
    LONG_MAKERS,
    PLAIN_TO_LONG,
    SCALAR_RESULTS,
    SQUASHERS,
    Function,
)
from transforms.spec.jolt.functions.calling import Shorten
from transforms.spec.jolt.levels import Walk, path_lookup, transposed
from transforms.spec.jolt.scalars import is_blank, to_number, unmark
from transforms.spec.jolt.views import MISSING
from transforms.spec.operation import copy_all
from transforms.spec.pointers import pointer


@dataclass(slots=True)
class Alternative:
    """One way to a value. `make` takes the expression of the value at hand and gives that of the result."""

    make: Callable[[ast.expr], ast.expr]
    may_miss: bool = True
    """Whether the result may be MISSING."""
    of_value: bool = False
    """Whether it is a function of the value at hand, and MISSING without one."""
    gives_scalar: bool = False
    """Whether the result is never an object or array."""
    pays: bool = False
    """Whether `make` calls a function that may take many steps."""
    prepare: Block = field(default_factory=list)
    """Statements that look up the `arguments` of a function."""
    arguments: list[ast.expr] = field(default_factory=list)
    shorten: Shorten | None = None
    """The function's short way."""


@dataclass(slots=True)
class Traits:
    """Side effects of one operation's functions."""

    placements: int = 0
    """The number of references read so far that may put an object or array of the event, or of the output, somewhere
    else."""
    reports_longs: bool = False
    """Whether a `Long` is another number to some function than an integer."""
    reports_own_longs: bool = False
    """Whether that may be a `Long` that the same operation made."""
    squashes: bool = False
    makes_longs: bool = False
    keeps_longs: bool = True
    """Whether a later part may distinguish a `Long` from another number."""

    def made_by(self, function: Callable[[Any], Any], called: str) -> Callable[[Any], Any]:
        """The function of this name as the code calls it."""
        if self.keeps_longs or called not in LONG_MAKERS:
            return function
        if function is FUNCTIONS["toLong"].one:
            return PLAIN_TO_LONG.one
        return lambda value: unmark(function(value))


def alternatives(right: Any, walk: Walk, traits: Traits) -> list[Alternative]:
    """Raises SpecError with a pointer into `right`."""
    code = walk[-1].code
    if isinstance(right, str):
        return [_expression(right, walk, traits)]
    if not isinstance(right, list) or not right:
        return [_constant(right, code)]
    found: list[Alternative] = []
    for index, part in enumerate(right):
        try:
            found.append(_expression(part, walk, traits) if isinstance(part, str) else _constant(part, code))
        except SpecError as error:
            raise error.under(pointer(index)) from None
    return found


def _constant(value: Any, code: Code) -> Alternative:
    node = constant_node(value, code)
    return Alternative(lambda _value: node, may_miss=False, gives_scalar=isinstance(node, ast.Constant))


def constant_node(value: Any, code: Code) -> ast.expr:
    """A JSON value of the spec as an expression; objects and arrays are rebuilt each time."""
    if value is None or type(value) in (str, int, float, bool):
        return constant(value)
    if isinstance(value, dict | list):
        return call(code.bind(copy_all), code.bind(value))
    return code.bind(value)


def _expression(text: str, walk: Walk, traits: Traits) -> Alternative:
    if text.startswith("="):
        return _call(text[1:], walk, traits)
    found = _lookup(text, walk)
    if found is None:
        return _constant(text, walk[-1].code)
    traits.placements += 1
    return Alternative(lambda _value: found)


def _lookup(text: str, walk: Walk) -> ast.expr | None:
    code = walk[-1].code
    if text.startswith("^"):
        path = text[1:]
        found = name(code.context) if is_blank(path) else path_lookup(code.context, parse_path(path), walk)
        # A context serves other events too: what comes from it must not be changed by a later operation.
        return call(code.bind(copy_all), found)
    if text.startswith("@"):
        elements = parse_path(text)
        if not isinstance(elements[-1], Transpose):
            raise SpecError(f"write '{text}' as @(level,path)")
        return transposed(elements[-1], walk)
    return None


def _call(text: str, walk: Walk, traits: Traits) -> Alternative:
    function_name, bracket, _ = text.partition("(")
    if not bracket and text.endswith(")"):
        raise SpecError(f"'={text}' has no '('")
    function = FUNCTIONS.get(function_name)
    if function is None:
        raise SpecError(f"there is no function '{function_name}'", hint=name_hint(function_name, FUNCTIONS))
    traits.squashes |= function_name in SQUASHERS
    traits.makes_longs |= function_name in LONG_MAKERS
    traits.reports_longs |= function_name not in BLIND_TO_LONGS
    code = walk[-1].code
    if not bracket:
        one = function.one
        return Alternative(
            lambda value: call(code.bind(traits.made_by(one, function_name)), value),
            of_value=True,
            pays=True,
            shorten=_short_way(function, function_name, traits),
        )
    if not text.endswith(")"):
        raise SpecError(f"the '(' of '={text}' is not closed")
    arguments = [_argument(part, walk) for part in split_arguments(text[len(function_name) + 1 : -1])]
    looked_up = any(is_looked_up for _, is_looked_up in arguments)
    traits.reports_own_longs |= looked_up and function_name not in BLIND_TO_LONGS
    # With two arguments `split` gives only parts of a text, and elements of an array that is an argument.
    if looked_up and function_name not in SCALAR_RESULTS and (function_name != "split" or len(arguments) > 2):
        traits.placements += 1
    made_by = partial(traits.made_by, called=function_name)
    made = _of_arguments(function, arguments, code, made_by)
    made.shorten = _short_way(function, function_name, traits)
    made.gives_scalar = function_name in SCALAR_RESULTS
    return made


def _of_arguments(
    function: Function, arguments: list[tuple[ast.expr, bool]], code: Code, made_by: Callable[[Any], Any]
) -> Alternative:
    looked_up = any(is_looked_up for _, is_looked_up in arguments)
    prepare: Block = []
    nodes: list[ast.expr] = []
    for node, is_looked_up in arguments:
        if is_looked_up and function.shorten is not None:
            variable = code.fresh("a")
            prepare.append(assign(variable, node))
            nodes.append(name(variable))
        else:
            nodes.append(node)

    if function.check is not None and isinstance(nodes[0], ast.Constant):
        function.check(nodes[0].value)

    def make(_value: ast.expr) -> ast.expr:
        if len(nodes) == 1:
            return call(code.bind(made_by(_one_of(function) if looked_up else function.one)), nodes[0])
        return call(code.bind(made_by(_many_of(function) if looked_up else function.call)), new_tuple(*nodes))

    return Alternative(make, pays=True, prepare=prepare, arguments=nodes)


def _short_way(function: Function, called: str, traits: Traits) -> Shorten | None:
    shorten = function.shorten
    if shorten is None or called not in LONG_MAKERS:
        return shorten

    def without_longs(code: Code, arguments: list[ast.expr], made: str, long_way: Block) -> Block:
        return long_way if traits.keeps_longs else shorten(code, arguments, made, long_way)

    return without_longs


def _one_of(function: Function) -> Callable[[Any], Any]:
    one = function.one
    if one(MISSING) is MISSING:
        return one
    return lambda value: MISSING if value is MISSING else one(value)


def _many_of(function: Function) -> Callable[[Sequence[Any]], Any]:
    many = function.call

    def call_many(values: Sequence[Any]) -> Any:
        for value in values:
            if value is MISSING:
                return many([None if value is MISSING else value for value in values])
        return many(values)

    return call_many


def split_arguments(text: str) -> list[str]:
    """The arguments between a function's brackets; commas in brackets and quotes do not separate."""
    parts: list[str] = []
    start = 0
    in_brackets = in_quotes = False
    for position, character in enumerate(text):
        if character == "'":
            in_quotes = not in_quotes
        elif character in "()" and not in_quotes:
            in_brackets = character == "("
        elif character == "," and not in_brackets and not in_quotes:
            parts.append(text[start:position])
            start = position + 1
    return [part.strip() for part in (*parts, text[start:])]


def _argument(text: str, walk: Walk) -> tuple[ast.expr, bool]:
    """The argument, and whether it is looked up: then it may be MISSING."""
    found = _lookup(text, walk)
    if found is not None:
        return found, True
    return constant_node(_literal(text), walk[-1].code), False


def _literal(text: str) -> Any:
    if not text:
        return None
    if text[0] == "'" and text[-1] == "'":
        if len(text) == 1:
            raise SpecError("a quote is not closed")
        return text[1:-1]
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    number = to_number(text)
    return text if number is None else number
