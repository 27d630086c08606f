"""JMESPath expressions as code: the paths and calls that most expressions are made of.

What they read is read once for all expressions of an operation; whatever else an expression holds is left to its
function.
"""

from __future__ import annotations

import ast
from typing import Any, Final

from transforms.spec.budget import FREE
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import (
    Block,
    assign,
    both,
    call,
    choice,
    constant,
    is_,
    is_not,
    less,
    method,
    name,
    named,
    when,
)
from transforms.spec.jmespath.compilation import Expression
from transforms.spec.jmespath.functions import CUSTOM_FUNCTIONS
from transforms.spec.jmespath.growth import field_chain, is_small

_NOTHING: Final[dict[str, Any]] = {}
"""Stands for what is no object: it has no keys."""


class ExpressionCode:
    """Makes the code of expressions that look at the same value."""

    def __init__(self, code: Code, value: str) -> None:
        self._code = code
        self._value = name(value)
        self._objects: dict[tuple[str, ...], str] = {}
        """The variables of the objects that keys lead to."""
        self._made: dict[str, str] = {}

    def make(self, expression: Expression, body: Block) -> tuple[ast.expr, bool]:
        """The expression's value, after what is added to `body`; and whether it may raise TransformError."""
        node = expression.tree
        keys = field_chain(node)
        if keys is not None:
            return self._read(keys, body), False
        known = self._made.get(repr(node))
        if known is not None:
            return name(known), False
        found = self._call(node, body) or call(self._code.bind(expression.evaluate), self._value)
        return found, True

    def keep(self, expression: Expression, variable: str) -> None:
        """A variable has the expression's value: the same expression need not be evaluated again."""
        # Two places of an output must not share an array that nobody shared in the event.
        if is_small(expression.tree):
            self._made[repr(expression.tree)] = variable

    def _read(self, keys: tuple[str, ...], body: Block) -> ast.expr:
        owner = self._object(keys[:-1], body)
        return method(name(owner), "get", constant(keys[-1]))

    def _object(self, keys: tuple[str, ...], body: Block) -> str:
        known = self._objects.get(keys)
        if known is not None:
            return known
        code = self._code
        made = self._objects[keys] = code.fresh("d")
        is_object = code.bind(dict)
        if not keys:
            found = choice(is_(_type(code, self._value), is_object), self._value, code.bind(_NOTHING))
            body.append(assign(made, found))
            return made
        body.append(assign(made, self._read(keys, body)))
        body += when(is_not(_type(code, name(made)), is_object), [assign(made, code.bind(_NOTHING))])
        return made

    def _call(self, node: dict[str, Any], body: Block) -> ast.expr | None:
        """A call of one of our functions with paths or such calls as arguments."""
        function = CUSTOM_FUNCTIONS.get(node["value"]) if node["type"] == "function_expression" else None
        if function is None or function.is_lazy:
            return None
        arguments: list[ast.expr] = []
        for child in node["children"]:
            keys = field_chain(child)
            argument = self._call(child, body) if keys is None else self._read(keys, body)
            if argument is None:
                return None
            arguments.append(argument)
        if function.shorten is None or len(arguments) != 1:
            return call(self._code.bind(function.call), *arguments)
        text = name(self._code.fresh("a"))
        long_way = call(self._code.bind(function.call), text)
        is_text = is_(_type(self._code, named(text.id, arguments[0])), self._code.bind(str))
        is_short = less(call(self._code.bind(len), text), constant(FREE + 1))
        return choice(both(is_text, is_short), function.shorten(self._code, text, long_way), long_way)


def _type(code: Code, value: ast.expr) -> ast.expr:
    return call(code.bind(type), value)
