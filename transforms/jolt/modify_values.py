"""The right side of a `modify-*` key: alternatives, the first of which that has a value is taken.

`"text"` and other JSON values stand for themselves, `@(1,a)` for what is found in the value at hand, `^a.b`
for what is found in the context, `=name` and `=name(a,b)` for what a function makes of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from model.errors import SpecError
from transforms.jolt.elements import Transpose, parse_path
from transforms.jolt.functions import FUNCTIONS, LONG_MAKERS, SQUASHERS
from transforms.jolt.levels import MISSING, Frame, Lookup, Walk, path_lookup, transposed
from transforms.jolt.numbers import to_number
from transforms.jolt.text import is_blank
from transforms.ownership import copy_all
from transforms.pointers import nearest, pointer

Evaluate: TypeAlias = Callable[[Any, Frame], Any]
"""Takes the value at hand (MISSING if there is none) and the frame; gives a value or MISSING."""


_CONTEXT_SLOT = 0


@dataclass(slots=True)
class Traits:
    """What the functions of one operation do besides giving values."""

    lookups: int = 0
    """How many references were read so far."""
    squashes: bool = False
    makes_longs: bool = False


def plain_function(right: Any) -> Callable[[Any], Any] | None:
    """The function of the value at hand that `"=name"` stands for, if `right` is nothing else."""
    function = FUNCTIONS.get(right[1:]) if isinstance(right, str) and right.startswith("=") else None
    return function.one if function else None


def alternatives(right: Any, walk: Walk, traits: Traits) -> Evaluate:
    """Raises SpecError with a pointer into `right`."""
    if isinstance(right, str):
        return _expression(right, walk, traits)
    if not isinstance(right, list) or not right:
        return _constant(right)
    evaluators: list[Evaluate] = []
    for index, part in enumerate(right):
        try:
            evaluators.append(_expression(part, walk, traits) if isinstance(part, str) else _constant(part))
        except SpecError as error:
            raise error.under(pointer(index)) from None
    if len(evaluators) == 1:
        return evaluators[0]

    def first_of(value: Any, frame: Frame) -> Any:
        for evaluate in evaluators:
            found = evaluate(value, frame)
            if found is not MISSING:
                return found
        return MISSING

    return first_of


def _constant(constant: Any) -> Evaluate:
    if isinstance(constant, dict | list):
        return lambda _value, _frame: copy_all(constant)
    return lambda _value, _frame: constant


def _expression(text: str, walk: Walk, traits: Traits) -> Evaluate:
    if text.startswith("="):
        return _call(text[1:], walk, traits)
    lookup = _lookup(text, walk, traits)
    if lookup is None:
        return _constant(text)
    found = lookup
    return lambda _value, frame: found(frame)


def _lookup(text: str, walk: Walk, traits: Traits) -> Lookup | None:
    if text.startswith("^"):
        traits.lookups += 1
        path = text[1:]
        found = _context if is_blank(path) else path_lookup(_CONTEXT_SLOT, parse_path(path), walk)
        # A context serves other events too: what comes from it must not be changed by a later operation.
        return lambda frame: copy_all(found(frame))
    if text.startswith("@"):
        traits.lookups += 1
        elements = parse_path(text)
        if not isinstance(elements[-1], Transpose):
            raise SpecError(f"write '{text}' as @(level,path)")
        return transposed(elements[-1], walk)
    return None


def _context(frame: Frame) -> Any:
    return frame[_CONTEXT_SLOT]


def _call(text: str, walk: Walk, traits: Traits) -> Evaluate:
    name, bracket, _ = text.partition("(")
    if not bracket and text.endswith(")"):
        raise SpecError(f"'={text}' has no '('")
    function = FUNCTIONS.get(name)
    if function is None:
        raise SpecError(f"there is no function '{name}'", hint=nearest(name, FUNCTIONS))
    traits.squashes |= name in SQUASHERS
    traits.makes_longs |= name in LONG_MAKERS
    if not bracket:
        one = function.one
        return lambda value, _frame: MISSING if value is MISSING else one(value)
    if not text.endswith(")"):
        raise SpecError(f"the '(' of '={text}' is not closed")
    arguments = [_argument(part, walk, traits) for part in split_arguments(text[len(name) + 1 : -1])]
    if len(arguments) == 1:
        only, one = arguments[0], function.one

        def call_one(_value: Any, frame: Frame) -> Any:
            argument = only(frame)
            return MISSING if argument is MISSING else one(argument)

        return call_one

    def call(_value: Any, frame: Frame) -> Any:
        found = [argument(frame) for argument in arguments]
        return function.call([None if argument is MISSING else argument for argument in found])

    return call


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


def _argument(text: str, walk: Walk, traits: Traits) -> Lookup:
    lookup = _lookup(text, walk, traits)
    if lookup is not None:
        return lookup
    constant = _literal(text)
    return lambda _frame: constant


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
