"""From a parsed JMESPath expression to a function.

The jmespath library parses; its interpreter is not used for events, because it walks the parsed tree anew
for each of them, which takes ten times as long. What each kind of node means is the library's, checked
against it by tests.
"""

from __future__ import annotations

import operator
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jmespath
from jmespath.exceptions import JMESPathError

from model.errors import SpecError
from transforms.expressions.calls import compile_call
from transforms.expressions.growth import Growths, measured, needs_measure
from transforms.expressions.syntax_errors import syntax_error
from transforms.expressions.truth import are_orderable, equal, is_false, is_number
from transforms.jolt.filling import size_of
from transforms.limits import DEFAULT_LIMITS, SpecLimits
from transforms.meter import FREE, paid, pay
from transforms.operation import UNBOUNDED
from transforms.ownership import copy_all

_PARSING = threading.Lock()

Evaluate: TypeAlias = Callable[[Any], Any]
"""Takes the value at hand, gives the result; null is None."""


class Expression(NamedTuple):
    """A compiled expression. `copies` bounds how often one part of the input stands in its result."""

    evaluate: Evaluate
    copies: float
    tree: dict[str, Any]
    """As the library parsed it."""


class _Scope(NamedTuple):
    """What the parts of one expression share while they are compiled."""

    limits: SpecLimits
    growths: Growths


def compile_expression(text: str, limits: SpecLimits = DEFAULT_LIMITS) -> Expression:
    """Raises SpecError (without a pointer) for an expression that cannot be parsed, for an unknown
    function and for a wrong number of arguments."""
    try:
        tree = _parse(text)
        return Expression(_compile(tree, _Scope(limits, Growths())), 1 if _is_path(tree) else UNBOUNDED, tree)
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


def paths_read(node: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Where the parts of the input stand that the result may hold, for an expression whose result is at most
    one part: at or below these keys."""
    keys = _field_chain(node)
    if keys is not None:
        yield tuple(keys)
    elif node["type"] in ("function_expression", "or_expression", "and_expression"):
        for child in node["children"]:
            yield from paths_read(child)
    elif node["type"] != "literal":
        # What a part of another kind reads is below what stands first in it.
        yield from paths_read(node["children"][0]) if node["children"] else ((),)


def _is_path(node: dict[str, Any]) -> bool:
    """Whether the result is at most one part of the input, or a text or number made of it."""
    if node["type"] == "function_expression":
        return node["value"] in _SMALL_RESULTS and all(map(_is_path, node["children"]))
    return node["type"] in _PATH_TYPES and all(map(_is_path, node["children"]))


def is_small(node: dict[str, Any]) -> bool:
    """Whether an expression is a call whose result is a text or number of its own."""
    return node["type"] == "function_expression" and node["value"] in _OWN_RESULTS


_PATH_TYPES = frozenset(
    {"field", "subexpression", "index_expression", "index", "current", "identity", "literal", "pipe"}
    | {"or_expression", "and_expression", "not_expression", "comparator"}
)
_OWN_RESULTS = frozenset(
    {"trim", "lower", "upper", "digits", "strip_leading_zeros", "epoch_ms", "to_number_exact"}
)
_SMALL_RESULTS = _OWN_RESULTS | frozenset(
    {"first_non_null", "not_null", "null_if_blank", "length", "to_number", "abs", "ceil", "floor", "type"}
    | {"contains", "starts_with", "ends_with"}
)


def _compile(node: dict[str, Any], scope: _Scope) -> Evaluate:
    return _COMPILERS[node["type"]](node, scope)


def _children(node: dict[str, Any], scope: _Scope) -> list[Evaluate]:
    return [_compile(child, scope) for child in node["children"]]


def _same(value: Any) -> Any:
    return value


def _field(node: dict[str, Any], _scope: _Scope) -> Evaluate:
    key = node["value"]
    return lambda value: value.get(key) if type(value) is dict else None


def _sequence(node: dict[str, Any], scope: _Scope) -> Evaluate:
    keys = _field_chain(node)
    if keys is not None:
        return _chain(keys)
    steps: list[Evaluate] = []
    before = 1
    for child in node["children"]:
        after = scope.growths.of(child)
        if needs_measure(before, after):
            steps.append(partial(measured, scope.limits))
            before = 1
        steps.append(_compile(child, scope))
        before *= after

    def evaluate(value: Any) -> Any:
        for step in steps:
            value = step(value)
        return value

    return evaluate


def _field_chain(node: dict[str, Any]) -> list[str] | None:
    """The keys of `a.b.c`, if the expression is nothing else."""
    if node["type"] == "field":
        return [node["value"]]
    if node["type"] != "subexpression":
        return None
    keys: list[str] = []
    for child in node["children"]:
        below = _field_chain(child)
        if below is None:
            return None
        keys += below
    return keys


def _chain(keys: list[str]) -> Evaluate:
    if len(keys) == 2:
        first, second = keys

        def evaluate_two(value: Any) -> Any:
            if type(value) is dict:
                below = value.get(first)
                if type(below) is dict:
                    return below.get(second)
            return None

        return evaluate_two

    def evaluate(value: Any) -> Any:
        for key in keys:
            if type(value) is not dict:
                return None
            value = value.get(key)
        return value

    return evaluate


def _index(node: dict[str, Any], _scope: _Scope) -> Evaluate:
    index = node["value"]

    def evaluate(value: Any) -> Any:
        if type(value) is not list or not -len(value) <= index < len(value):
            return None
        return value[index]

    return evaluate


def _slice(node: dict[str, Any], _scope: _Scope) -> Evaluate:
    part = slice(*node["children"])
    if part.step == 0:
        raise SpecError("the step of a slice cannot be 0")

    def evaluate(value: Any) -> Any:
        if type(value) is not list:
            return None
        found = value[part]
        pay(len(found))
        return found

    return evaluate


def _literal(node: dict[str, Any], _scope: _Scope) -> Evaluate:
    constant = node["value"]
    if isinstance(constant, dict | list):
        size = size_of(constant)

        def copied(_value: Any) -> Any:
            pay(size)
            return copy_all(constant)

        return copied
    if isinstance(constant, str) and len(constant) > FREE:
        return lambda _value: paid(constant)
    return lambda _value: constant


def _comparator(node: dict[str, Any], scope: _Scope) -> Evaluate:
    left, right = _children(node, scope)
    name = node["value"]
    if name == "eq":
        return lambda value: equal(left(value), right(value))
    if name == "ne":
        return lambda value: not equal(left(value), right(value))
    compare = {"lt": operator.lt, "gt": operator.gt, "lte": operator.le, "gte": operator.ge}[name]

    def evaluate(value: Any) -> Any:
        one, other = left(value), right(value)
        return compare(one, other) if are_orderable(one, other) else None

    return evaluate


def _or(node: dict[str, Any], scope: _Scope) -> Evaluate:
    left, right = _children(node, scope)

    def evaluate(value: Any) -> Any:
        found = left(value)
        return right(value) if is_false(found) else found

    return evaluate


def _and(node: dict[str, Any], scope: _Scope) -> Evaluate:
    left, right = _children(node, scope)

    def evaluate(value: Any) -> Any:
        found = left(value)
        return found if is_false(found) else right(value)

    return evaluate


def _not(node: dict[str, Any], scope: _Scope) -> Evaluate:
    (child,) = _children(node, scope)

    def evaluate(value: Any) -> bool:
        found = child(value)
        return not (is_number(found) or found)

    return evaluate


def _base(node: dict[str, Any], scope: _Scope) -> Evaluate:
    """What a projection goes over, measured if what it does with each element could make it large."""
    base = _compile(node["children"][0], scope)
    if needs_measure(scope.growths.of(node["children"][0]), scope.growths.of(node["children"][1])):
        return lambda value: measured(scope.limits, base(value))
    return base


_NODES_A_STEP = 4


def _steps(node: dict[str, Any], scope: _Scope) -> int:
    """What one round of a projection costs: what it does with each element is as long as the spec has it."""
    return 1 + sum(map(scope.growths.size, node["children"][1:])) // _NODES_A_STEP


def _projection(node: dict[str, Any], scope: _Scope) -> Evaluate:
    base, each = _base(node, scope), _compile(node["children"][1], scope)
    objects = node["type"] == "value_projection"
    steps = _steps(node, scope)

    def evaluate(value: Any) -> Any:
        found = base(value)
        if objects:
            if type(found) is not dict:
                return None
            found = found.values()
        elif type(found) is not list:
            return None
        pay(len(found) * steps)
        results = [each(element) for element in found]
        return [result for result in results if result is not None]

    return evaluate


def _filter(node: dict[str, Any], scope: _Scope) -> Evaluate:
    base, each, condition = _base(node, scope), *(_compile(child, scope) for child in node["children"][1:])
    steps = _steps(node, scope)

    def evaluate(value: Any) -> Any:
        found = base(value)
        if type(found) is not list:
            return None
        pay(len(found) * steps)
        results = [each(element) for element in found if not is_false(condition(element))]
        return [result for result in results if result is not None]

    return evaluate


def _flatten(node: dict[str, Any], scope: _Scope) -> Evaluate:
    (base,) = _children(node, scope)

    def evaluate(value: Any) -> Any:
        found = base(value)
        if type(found) is not list:
            return None
        pay(len(found))
        merged: list[Any] = []
        for element in found:
            if type(element) is list:
                pay(len(element))
                merged += element
            else:
                merged.append(element)
        return merged

    return evaluate


def _multi_list(node: dict[str, Any], scope: _Scope) -> Evaluate:
    children = _children(node, scope)
    return lambda value: None if value is None else [child(value) for child in children]


def _multi_object(node: dict[str, Any], scope: _Scope) -> Evaluate:
    pairs = [(child["value"], _compile(child["children"][0], scope)) for child in node["children"]]
    return lambda value: None if value is None else {key: child(value) for key, child in pairs}


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
    """An expression that a function calls for each element."""
    each, steps = _compile(node, scope), 1 + scope.growths.size(node) // _NODES_A_STEP

    def evaluate(value: Any) -> Any:
        pay(steps)
        return each(value)

    return evaluate


def _stray_reference(_node: dict[str, Any], _scope: _Scope) -> Evaluate:
    raise SpecError("'&' can only stand before an argument of a function")


_COMPILERS: dict[str, Callable[[dict[str, Any], _Scope], Evaluate]] = {
    "field": _field,
    "subexpression": _sequence,
    "index_expression": _sequence,
    "pipe": _sequence,
    "current": lambda _node, _scope: _same,
    "identity": lambda _node, _scope: _same,
    "index": _index,
    "slice": _slice,
    "literal": _literal,
    "comparator": _comparator,
    "or_expression": _or,
    "and_expression": _and,
    "not_expression": _not,
    "projection": _projection,
    "value_projection": _projection,
    "filter_projection": _filter,
    "flatten": _flatten,
    "multi_select_list": _multi_list,
    "multi_select_dict": _multi_object,
    "function_expression": _call,
    "expref": _stray_reference,
}
