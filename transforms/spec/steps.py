"""The bound on how much work one event may make: counted at loops over what the event holds.

What functions do, in loops or not, is counted in `budget`.
"""

from __future__ import annotations

import ast
from typing import Any

from transforms.spec.budget import CHARACTERS_A_STEP, too_many_steps
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import Block, assign, call, constant, do, less, minus, name, times, when

WRITES_A_STEP = 4


def count_steps(code: Code, over: ast.expr, most: int, body: Block, size: int = 1) -> None:
    """Before a loop over `over`: one step for each round, or more if a round may write many values. `size` is how
    many the spec has there."""
    steps = 1 + size // WRITES_A_STEP
    length = call(code.bind(len), over)
    _take(code, length if steps == 1 else times(length, constant(steps)), most, body)


def count_weight(code: Code, made: ast.expr, most: int, body: Block) -> None:
    """In a loop: steps for the size of what a function made."""
    _take(code, call(code.bind(_weight), made), most, body)


def _take(code: Code, steps: ast.expr, most: int, body: Block) -> None:
    left = code.variable("steps", constant(most))
    body.append(assign(left, minus(name(left), steps)))
    body += when(less(name(left), constant(0)), [do(call(code.bind(too_many_steps)))])


def _weight(made: Any) -> int:
    if type(made) is str:
        return len(made) // CHARACTERS_A_STEP
    return len(made) if type(made) is list else 0
