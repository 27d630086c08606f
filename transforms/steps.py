"""The bound on how much work one event may make: counted at loops over what the event holds.

What stands outside of loops is bounded by the spec's size.
"""

from __future__ import annotations

import ast
from typing import NoReturn

from model.errors import TransformError
from transforms.generation.code import Code
from transforms.generation.nodes import (
    Block,
    assign,
    call,
    constant,
    do,
    less,
    minus,
    name,
    when,
)


def count_steps(code: Code, over: ast.expr, most: int, body: Block) -> None:
    """Before a loop over `over`: one step for each round."""
    left = code.variable("steps", constant(most))
    body.append(assign(left, minus(name(left), call(code.bind(len), over))))
    body += when(less(name(left), constant(0)), [do(call(code.bind(_too_many)))])


def _too_many() -> NoReturn:
    raise TransformError("the event makes the spec take too many steps")
