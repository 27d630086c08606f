"""The steps that functions take for one event: what they read and make, wherever the spec calls them.

Functions are called from generated code, from each other and by the JMESPath library, so what is left stands beside
them, for each thread by itself. `metered` code sets it when it first comes to such a call.
"""

from __future__ import annotations

import threading
from typing import Any

from model.errors import TransformError
from transforms.generation.code import Code
from transforms.generation.nodes import Block, assign, call, constant, is_, name, when
from transforms.limits import DEFAULT_LIMITS, SpecLimits

CHARACTERS_A_STEP = 64
FREE = 512
"""Characters of a text that cost nothing: so many for each call of a spec are bounded by the spec's size."""


class _Meter(threading.local):
    left = DEFAULT_LIMITS.max_steps


_METER = _Meter()


def metered(code: Code, limits: SpecLimits) -> Block:
    """The code before a call that may `pay`: the first one of an event has all steps before it."""
    started = code.variable("meter", constant(False))
    start = assign(started, call(code.bind(_start), constant(limits.max_steps)))
    return when(is_(name(started), constant(False)), [start])


def _start(steps: int) -> bool:
    _METER.left = steps
    return True


def pay(steps: int) -> None:
    """Raises TransformError if the event makes the spec take too many steps."""
    left = _METER.left = _METER.left - steps
    if left < 0:
        _METER.left = DEFAULT_LIMITS.max_steps
        raise TransformError("the event makes the spec take too many steps")


def paid(text: str) -> str:
    """A text that a function takes or has made. Raises TransformError."""
    if len(text) > FREE:
        pay(len(text) // CHARACTERS_A_STEP)
    return text


def pay_for(value: Any) -> None:
    """Before a function reads a value, but not what is in its elements. Raises TransformError."""
    kind = type(value)
    if kind is str:
        paid(value)
    elif kind is dict:
        pay(len(value))
    elif kind is list:
        pay(len(value))
        pay(sum(len(each) for each in value if type(each) is str) // CHARACTERS_A_STEP)


def pay_for_all(value: Any) -> None:
    """Before a function reads a value with all that is in it, shared parts each time. Raises TransformError."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        pay_for(each)
        if type(each) is dict:
            waiting += [below for below in each.values() if type(below) is dict or type(below) is list]
        elif type(each) is list:
            waiting += [below for below in each if type(below) is dict or type(below) is list]
