"""From a JMESPath expression to a function, or to an error in the words of its author.

The jmespath library parses. Its interpreter is not used for events: it walks the parsed tree for each of them, which
takes ten times as long. Tests compare the meaning of each kind of node with the library; the functions are in
`transforms.spec.jmespath.evaluators`.
"""

from __future__ import annotations

import re
import threading
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jmespath
from jmespath.exceptions import IncompleteExpressionError, JMESPathError, LexerError, ParseError

from idgraph.model.errors import SpecError
from transforms.spec.jmespath import evaluators
from transforms.spec.jmespath.calls import compile_call
from transforms.spec.jmespath.evaluators import Evaluate
from transforms.spec.jmespath.growth import Growths, field_chain, is_path, measured, needs_measure
from transforms.spec.limits import DEFAULT_LIMITS, SpecLimits
from transforms.spec.operation import UNBOUNDED
from transforms.spec.pointers import found

_TOKENS = {
    "quoted_identifier": "a key",
    "unquoted_identifier": "a key",
    "lbracket": "'['",
    "lbrace": "'{'",
    "rbracket": "']'",
    "rbrace": "'}'",
    "rparen": "')'",
    "colon": "':'",
    "comma": "','",
    "number": "a number",
    "star": "'*'",
    "eof": "the end",
}
_EXPECTED = re.compile(r"Expecting: (.+?), got: ")
_CHARACTER_HINTS = {
    "=": "equality is '=='",
    "-": 'a key with other characters than letters, digits and _ stands in double quotes: "a-b"',
    "$": "the whole payload is '@'; a key that starts with $ stands in double quotes: \"$key\"",
    "/": "there is no division",
    "+": "there is no addition; sum([a, b]) adds",
}


def syntax_error(expression: str, error: JMESPathError) -> SpecError:
    """The error of the parser as SpecError without a pointer, with the offset in the expression."""
    if not expression.strip():
        return SpecError("expected a JMESPath expression, found empty text")
    if not isinstance(error, ParseError):
        return SpecError("no valid JMESPath expression")
    offset = min(int(error.lex_position), len(expression))
    message, hint = _message_and_hint(expression, error, offset)
    return SpecError(f"JMESPath, character {offset + 1}: {message}", hint=hint, offset=offset)


def _message_and_hint(expression: str, error: ParseError, offset: int) -> tuple[str, str | None]:
    if isinstance(error, LexerError):
        return _lexer_error(expression, error, offset)
    expected = _EXPECTED.search(str(error.msg))
    wanted = _names(expected[1]) if expected else ""
    if isinstance(error, IncompleteExpressionError) or not error.token_value:
        return f"expected {wanted or 'more'}, found the end of the expression", _unclosed(expression)
    token = found(str(error.token_value))[1:-1]
    return (f"expected {wanted}, found '{token}'" if wanted else f"'{token}' cannot stand here"), None


def _lexer_error(expression: str, error: LexerError, offset: int) -> tuple[str, str | None]:
    unclosed = re.match(r"Unclosed (.) delimiter", str(error.message))
    if unclosed:
        return f"the {unclosed[1]} is not closed", None
    character = expression[offset : offset + 1]
    return f"'{character}' cannot stand here", _CHARACTER_HINTS.get(character)


def _names(expected: str) -> str:
    names = re.findall(r"[a-z_]+", expected)
    return " or ".join(dict.fromkeys(_TOKENS.get(name, name) for name in names))


def _unclosed(expression: str) -> str | None:
    """The bracket that was opened last and never closed; what stands in quotes does not count."""
    opened: list[str] = []
    for character in re.sub(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`""", "", expression):
        if character in "([{":
            opened.append(character)
        elif character in ")]}" and opened:
            opened.pop()
    return f"the '{opened[-1]}' is not closed" if opened else None


_PARSING = threading.Lock()


class Expression(NamedTuple):
    """A compiled expression. `copies` bounds how often one part of the input stands in its result."""

    evaluate: Evaluate
    copies: float
    tree: dict[str, Any]
    """As the library parsed it."""


class _Scope(NamedTuple):
    """The shared state of one expression's compilation."""

    limits: SpecLimits
    growths: Growths


def compile_expression(text: str, limits: SpecLimits = DEFAULT_LIMITS) -> Expression:
    """Raises SpecError (without a pointer) for an expression that cannot be parsed, for an unknown
    function and for a wrong number of arguments."""
    try:
        tree = _parse(text)
        return Expression(_compile(tree, _Scope(limits, Growths())), 1 if is_path(tree) else UNBOUNDED, tree)
    except JMESPathError as error:
        raise syntax_error(text, error) from None
    except RecursionError:
        raise SpecError("the expression is nested too deeply") from None


def _parse(text: str) -> Any:
    # The parser keeps what it parsed in a cache that all threads share, and warns of the old way to write
    # text (`text` without quotes), which stays valid.
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return jmespath.compile(text).parsed


def _compile(node: dict[str, Any], scope: _Scope) -> Evaluate:
    return _COMPILERS[node["type"]](node, scope)


def _children(node: dict[str, Any], scope: _Scope) -> list[Evaluate]:
    return [_compile(child, scope) for child in node["children"]]


def _sequence(node: dict[str, Any], scope: _Scope) -> Evaluate:
    keys = field_chain(node)
    if keys is not None:
        return evaluators.chain(keys)
    steps: list[Evaluate] = []
    before = 1
    for child in node["children"]:
        after = scope.growths.of(child)
        if needs_measure(before, after):
            steps.append(partial(measured, scope.limits))
            before = 1
        steps.append(_compile(child, scope))
        before *= after
    return evaluators.in_turn(steps)


def _comparator(node: dict[str, Any], scope: _Scope) -> Evaluate:
    return evaluators.compared(node["value"], *_children(node, scope))


def _made_of_children(make: Callable[..., Evaluate]) -> Callable[[dict[str, Any], _Scope], Evaluate]:
    return lambda node, scope: make(*_children(node, scope))


def _made_of_value(make: Callable[[Any], Evaluate]) -> Callable[[dict[str, Any], _Scope], Evaluate]:
    return lambda node, _scope: make(node["value"])


def _base(node: dict[str, Any], scope: _Scope) -> Evaluate:
    """The elements of a projection, measured if what it does with each element could make it large."""
    base = _compile(node["children"][0], scope)
    if needs_measure(scope.growths.of(node["children"][0]), scope.growths.of(node["children"][1])):
        return lambda value: measured(scope.limits, base(value))
    return base


_NODES_A_STEP = 4


def _steps(node: dict[str, Any], scope: _Scope) -> int:
    """The cost of one round of a projection: as long as its part of the spec."""
    return 1 + sum(map(scope.growths.size, node["children"][1:])) // _NODES_A_STEP


def _projection(node: dict[str, Any], scope: _Scope) -> Evaluate:
    base, each = _base(node, scope), _compile(node["children"][1], scope)
    return evaluators.projected(base, each, _steps(node, scope), node["type"] == "value_projection")


def _filter(node: dict[str, Any], scope: _Scope) -> Evaluate:
    base, each, condition = _base(node, scope), *(_compile(child, scope) for child in node["children"][1:])
    return evaluators.filtered(base, each, condition, _steps(node, scope))


def _multi_list(node: dict[str, Any], scope: _Scope) -> Evaluate:
    return evaluators.listed(_children(node, scope))


def _multi_object(node: dict[str, Any], scope: _Scope) -> Evaluate:
    return evaluators.keyed(
        [(child["value"], _compile(child["children"][0], scope)) for child in node["children"]]
    )


def _call(node: dict[str, Any], scope: _Scope) -> Evaluate:
    arguments = [
        (_paying(child["children"][0], scope), True)
        if child["type"] == "expref"
        else (_compile(child, scope), False)
        for child in node["children"]
    ]
    constants = [child["value"] if child["type"] == "literal" else None for child in node["children"]]
    return compile_call(node["value"], arguments, constants)


def _paying(node: dict[str, Any], scope: _Scope) -> Evaluate:
    each, steps = _compile(node, scope), 1 + scope.growths.size(node) // _NODES_A_STEP
    return evaluators.paying(each, steps)


def _stray_reference(_node: dict[str, Any], _scope: _Scope) -> Evaluate:
    raise SpecError("'&' can only stand before an argument of a function")


_COMPILERS: dict[str, Callable[[dict[str, Any], _Scope], Evaluate]] = {
    "field": _made_of_value(evaluators.field),
    "subexpression": _sequence,
    "index_expression": _sequence,
    "pipe": _sequence,
    "current": lambda _node, _scope: evaluators.same,
    "identity": lambda _node, _scope: evaluators.same,
    "index": _made_of_value(evaluators.index),
    "slice": lambda node, _scope: evaluators.sliced(slice(*node["children"])),
    "literal": _made_of_value(evaluators.constant),
    "comparator": _comparator,
    "or_expression": _made_of_children(evaluators.either),
    "and_expression": _made_of_children(evaluators.both),
    "not_expression": _made_of_children(evaluators.negated),
    "projection": _projection,
    "value_projection": _projection,
    "filter_projection": _filter,
    "flatten": _made_of_children(evaluators.flattened),
    "multi_select_list": _multi_list,
    "multi_select_dict": _multi_object,
    "function_expression": _call,
    "expref": _stray_reference,
}
