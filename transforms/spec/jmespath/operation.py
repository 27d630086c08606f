"""The operation `jmespath`, which builds a new object from expressions, and the code of the common expressions.

The spec maps target paths to JMESPath expressions. A target is a dotted attribute path
(`"identity.email"`), or objects may be nested (`{"identity": {"email": ...}}`), or both. An expression
whose result is null sets nothing.

Paths, and calls with paths as arguments, become code; all expressions of an operation share what they read. Any other
expression is a call of its function.
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, Final

from idgraph.model import paths
from idgraph.model.errors import SpecError, TransformError
from transforms.spec.budget import FREE, start
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import (
    NONE,
    Block,
    assign,
    both,
    call,
    choice,
    constant,
    either,
    is_,
    is_not,
    less,
    method,
    name,
    named,
    new_dict,
    when,
)
from transforms.spec.jmespath.compilation import Expression, compile_expression
from transforms.spec.jmespath.functions import CUSTOM_FUNCTIONS
from transforms.spec.jmespath.growth import all_read, field_chain, is_form, is_small, paths_read
from transforms.spec.jolt.place_code import PlaceCode
from transforms.spec.jolt.places import PathElement, State, Target
from transforms.spec.jolt.writers import StepKind
from transforms.spec.limits import DEFAULT_LIMITS, SpecLimits
from transforms.spec.operation import EmitContext, Operation, PathTree
from transforms.spec.operation_moves import OperationMoves, SpecLine, move
from transforms.spec.pointers import found, pointer

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
        existing = self._objects.get(keys)
        if existing is not None:
            return existing
        code = self._code
        variable = self._objects[keys] = code.fresh("d")
        is_object = code.bind(dict)
        if not keys:
            found = choice(is_(_type(code, self._value), is_object), self._value, code.bind(_NOTHING))
            body.append(assign(variable, found))
            return variable
        body.append(assign(variable, self._read(keys, body)))
        body += when(is_not(_type(code, name(variable)), is_object), [assign(variable, code.bind(_NOTHING))])
        return variable

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


def compile_jmespath(spec: Any, limits: SpecLimits, code: Code) -> Operation:
    """Raises SpecError with a pointer into `spec`."""
    if not isinstance(spec, dict):
        raise SpecError(f"expected an object as the spec of jmespath, found {found(spec)}")
    targets: dict[tuple[str, ...], Expression] = {}
    for keys, expression in _targets(spec, (), limits):
        targets[keys] = expression
    places = {keys: _place(keys, targets) for keys in targets}
    root = PathElement(code.fresh("o"), state=State.SET)

    def emit(flow: EmitContext, body: Block) -> None:
        expressions = ExpressionCode(code, flow.value)
        writer = PlaceCode(code, code.borrowed, limits)
        body.append(assign(root.variable, new_dict()))
        groups = _by_parents(places.values())
        reached = {parents: _reach(root, parents, code) for parents in groups}
        for parents, lasts in groups.items():
            place = reached[parents]
            for last in lasts:
                keys = (*parents, last)
                value, raises = expressions.make(targets[keys], body)
                if raises:
                    body += flow.budgeted()
                    flow.mark(f"at '{paths.join(keys)}': ", body)
                result = code.fresh("v")
                body.append(assign(result, value))
                expressions.keep(targets[keys], result)
                target = Target(place, (StepKind.KEY,), (last,), exclusive=True)
                write = writer.branch(partial(writer.write, target, name(result)))
                body += when(is_not(name(result), NONE), write)
        flow.replace(either(name(root.variable), NONE), body)
        flow.known = root

    built: PathTree = {}
    for parents, _ in places.values():
        below = built
        for key in parents:
            below = below.setdefault(key, {})
    return Operation(
        emit,
        builds=built,
        copies=_copies(targets.values()),
    )


def all_sources(spec: Any) -> set[str]:
    """The attribute paths at or below which all stands that the expressions of a spec look at; the empty path: anywhere."""
    return {
        paths.join(each)
        for _, expression in _targets(spec, (), DEFAULT_LIMITS)
        for each in all_read(expression.tree)
    }


def jmespath_moves(spec: dict[str, Any], at: str, line: SpecLine, before: str) -> OperationMoves:
    """See `OperationMoves`."""
    made = OperationMoves([], line)
    for keys, expression in _targets(spec, (), DEFAULT_LIMITS) if spec else ():
        tree = expression.tree
        is_copy = tree["type"] == "current" or field_chain(tree) is not None
        is_plain = is_copy or is_form(tree)
        place, content = f"/operations{at} at '{paths.join(keys)}'", repr(tree)
        by = SpecLine(place, content if is_plain else content + before, not is_plain)
        made.moves += [move(source, keys, is_copy, by) for source in all_read(tree)]
        made.written.append(keys)
    return made


def failing_targets(spec: Any, value: Any, place: str, limits: SpecLimits) -> Iterator[TransformError]:
    """All targets of a spec that compiles whose expressions refuse a value. `place` points to the operation."""
    for keys, expression in _targets(spec, (), limits):
        start(limits)
        try:
            expression.evaluate(value)
        except TransformError as error:
            yield TransformError(f"at '{paths.join(keys)}': {error.message}", place)


def _copies(expressions: Iterable[Expression]) -> float:
    """At most how many expressions give the same part: one gives what others give keys of."""
    counts: Counter[tuple[str, ...]] = Counter()
    for expression in expressions:
        if expression.copies > 1:
            return expression.copies
        counts.update(paths_read(expression.tree))
    return max((sum(counts[keys[:end]] for end in range(len(keys) + 1)) for keys in counts), default=1)


def _by_parents(
    places: Iterable[tuple[tuple[str, ...], str]],
) -> dict[tuple[str, ...], list[str]]:
    groups: dict[tuple[str, ...], list[str]] = {}
    for parents, last in places:
        groups.setdefault(parents, []).append(last)
    return groups


def _reach(root: PathElement, parents: tuple[str, ...], code: Code) -> PathElement:
    """The place of an object of the output. No other target can stand there."""
    place = root
    for key in parents:
        below = place.below.get(key)
        if below is None:
            below = place.below[key] = PathElement(code.fresh("p", unset=True), place, key)
        place = below
    return place


def _targets(
    spec: dict[str, Any], above: tuple[str, ...], limits: SpecLimits
) -> Iterator[tuple[tuple[str, ...], Expression]]:
    if not spec:
        raise SpecError("an empty object sets nothing")
    for path, right in spec.items():
        keys = (*above, *paths.split(path))
        try:
            if not all(keys):
                raise SpecError("a target path cannot have an empty key")
            if isinstance(right, dict):
                yield from _targets(right, keys, limits)
            elif isinstance(right, str):
                yield keys, compile_expression(right, limits)
            else:
                raise SpecError(f"expected a JMESPath expression or an object, found {found(right)}")
        except SpecError as error:
            raise error.under(pointer(path)) from None


def _place(keys: tuple[str, ...], targets: dict[tuple[str, ...], Expression]) -> tuple[tuple[str, ...], str]:
    for length in range(1, len(keys)):
        if keys[:length] in targets:
            raise SpecError(
                f"the targets '{paths.join(keys[:length])}' and '{paths.join(keys)}' exclude each other"
            )
    return keys[:-1], keys[-1]
