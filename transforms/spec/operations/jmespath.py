"""`jmespath`: builds a new object from expressions.

The spec maps target paths to JMESPath expressions. A target is a dotted attribute path
(`"identity.email"`), or objects may be nested (`{"identity": {"email": ...}}`), or both. An expression
whose result is null sets nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from idgraph.model import paths
from idgraph.model.errors import SpecError, TransformError
from transforms.spec.budget import start
from transforms.spec.emit_context import EmitContext
from transforms.spec.generation.code import Code
from transforms.spec.generation.nodes import NONE, Block, assign, either, is_not, name, new_dict, when
from transforms.spec.jmespath import Expression, ExpressionCode, compile_expression, paths_read
from transforms.spec.jolt.output_paths import Kind
from transforms.spec.jolt.place_code import PlaceCode
from transforms.spec.jolt.places import PathElement, State, Target
from transforms.spec.limits import SpecLimits
from transforms.spec.operation import Operation, PathTree
from transforms.spec.pointers import found, pointer


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
                target = Target(place, (Kind.KEY,), (last,), exclusive=True)
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
