"""The steps that functions take for one event: what they read and make, wherever the spec calls them.

Functions are called from generated code, from each other and by the JMESPath library, so what is left, and the limits
of the spec at hand, stand beside them, for each thread by itself. `budgeted` code sets both when it first comes to such
a call.
"""

from __future__ import annotations

import ast
import threading
from collections.abc import Iterable
from decimal import Decimal
from functools import partial
from typing import Any, NoReturn

from idgraph.model.errors import SpecLimitError
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import (
    Block,
    assign,
    call,
    constant,
    do,
    is_,
    less,
    minus,
    name,
    times,
    when,
)
from transforms.spec.limits import DEFAULT_LIMITS, SpecLimits

CHARACTERS_A_STEP = 64
FREE = 512
"""Characters of a text that cost nothing: so many for each call of a spec are bounded by the spec's size."""

_LONG_INTEGER = 1 << 512
_SHORT_DECIMAL = Decimal(1).__sizeof__()


class _Budget(threading.local):
    left = DEFAULT_LIMITS.max_steps
    limits = DEFAULT_LIMITS


_BUDGET = _Budget()


def budgeted(code: Code, limits: SpecLimits) -> Block:
    """The code before a call that may `pay`: the first one of an event has all steps before it."""
    started = code.variable("meter", constant(False))
    begin = assign(started, call(code.bind(partial(start, limits))))
    return when(is_(name(started), constant(False)), [begin])


def start(limits: SpecLimits) -> bool:
    """Give this thread these limits, and the full number of steps."""
    _BUDGET.limits = limits
    _BUDGET.left = limits.max_steps
    return True


def limits_at_hand() -> SpecLimits:
    """The limits of the spec that runs in this thread."""
    return _BUDGET.limits


def pay(steps: int) -> None:
    """Raises TransformError if the event makes the spec take too many steps."""
    left = _BUDGET.left = _BUDGET.left - steps
    if left < 0:
        _BUDGET.left = _BUDGET.limits.max_steps
        too_many_steps()


def too_many_steps() -> NoReturn:
    """Raises TransformError, whichever of the two counts came to its end."""
    raise SpecLimitError("the event makes the spec take too many steps")


def paid(text: str) -> str:
    """A text that a function takes or has made. Raises TransformError."""
    if len(text) > FREE:
        check_length(len(text))
        pay(len(text) // CHARACTERS_A_STEP)
    return text


def check_length(length: int) -> None:
    """Raises TransformError if a text of this length is more than a function may take or make."""
    most = _BUDGET.limits.max_text
    if length > most:
        raise SpecLimitError(f"a text that a function takes or makes is longer than {most} characters")


def pay_for(value: Any) -> None:
    """Before a function reads a value, but not what is in its elements. Raises TransformError."""
    kind = type(value)
    if kind is str:
        paid(value)
    elif kind is dict:
        pay(len(value))
    elif kind is list:
        pay(len(value))
        pay(_weight(value))
    elif kind is int or kind is Decimal:
        pay(_weight((value,)))


def pay_for_all(value: Any) -> None:
    """Before a function reads a value with all that is in it, shared parts each time. Raises TransformError."""
    pay_for(value)
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if type(each) is dict:
            pay(len(each) + _weight(each) + _weight(each.values()))
            waiting += [below for below in each.values() if type(below) is dict or type(below) is list]
        elif type(each) is list:
            pay(len(each) + _weight(each))
            waiting += [below for below in each if type(below) is dict or type(below) is list]


def _weight(values: Iterable[Any]) -> int:
    """Steps for what texts and numbers hold. Numbers of thousands of digits are dear: to spell or compare one takes a
    time that grows with the square of its digits."""
    characters = steps = 0
    for each in values:
        kind = type(each)
        if kind is str:
            characters += len(each)
        elif kind is int:
            if not -_LONG_INTEGER < each < _LONG_INTEGER:
                steps += each.__sizeof__()
        elif kind is Decimal:
            steps += each.__sizeof__() - _SHORT_DECIMAL
    return steps + characters // CHARACTERS_A_STEP


WRITES_A_STEP = 4


def count_steps(code: Code, over: ast.expr, most: int, body: Block, size: int = 1) -> None:
    """Before a loop over `over`: one step for each round, or more if a round may write many values. `size` is how
    many the spec has there."""
    steps = 1 + size // WRITES_A_STEP
    length = call(code.bind(len), over)
    _spend(code, length if steps == 1 else times(length, constant(steps)), most, body)


def count_weight(code: Code, made: ast.expr, most: int, body: Block) -> None:
    """In a loop: steps for the size of what a function made."""
    _spend(code, call(code.bind(_steps_weight), made), most, body)


def _spend(code: Code, steps: ast.expr, most: int, body: Block) -> None:
    left = code.variable("steps", constant(most))
    body.append(assign(left, minus(name(left), steps)))
    body += when(less(name(left), constant(0)), [do(call(code.bind(too_many_steps)))])


def _steps_weight(made: Any) -> int:
    if type(made) is str:
        return len(made) // CHARACTERS_A_STEP
    return len(made) if type(made) is list else 0
