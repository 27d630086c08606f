"""`jmespath`: builds a new object from expressions.

The spec maps target paths to JMESPath expressions. A target is a dotted attribute path
(`"identity.email"`), or objects may be nested (`{"identity": {"email": ...}}`), or both. An expression
whose result is null sets nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from model import paths
from model.errors import SpecError, TransformError
from transforms.expressions import Expression, compile_expression
from transforms.generation.code import Code
from transforms.limits import SpecLimits
from transforms.operation import Operation
from transforms.ownership import PathTree
from transforms.pointers import found, pointer


def compile_jmespath(spec: Any, limits: SpecLimits, _code: Code) -> Operation:
    """Raises SpecError with a pointer into `spec`."""
    if not isinstance(spec, dict):
        raise SpecError(f"expected an object as the spec of jmespath, found {found(spec)}")
    targets: dict[tuple[str, ...], Expression] = {}
    for keys, expression in _targets(spec, (), limits):
        targets[keys] = expression
    places = {keys: _place(keys, targets) for keys in targets}
    groups = tuple(
        (parents, tuple((targets[(*parents, last)].evaluate, last) for last in lasts))
        for parents, lasts in _by_parents(places.values()).items()
    )

    def build(value: Any) -> Any:
        out: dict[str, Any] = {}
        last = ""
        parents: tuple[str, ...] = ()
        try:
            for parents, settings in groups:
                place = None if parents else out
                for evaluate, last in settings:
                    result = evaluate(value)
                    if result is not None:
                        if place is None:
                            place = _reach(out, parents)
                        place[last] = result
        except TransformError as error:
            raise TransformError(f"at '{paths.join((*parents, last))}': {error.message}") from None
        return out or None

    built: PathTree = {}
    for parents, _ in places.values():
        below = built
        for key in parents:
            below = below.setdefault(key, {})
    return Operation(
        lambda flow, body: flow.pass_through(build, body),
        builds=built,
        copies=sum(expression.copies for expression in targets.values()),
    )


def _by_parents(
    places: Iterable[tuple[tuple[str, ...], str]],
) -> dict[tuple[str, ...], list[str]]:
    groups: dict[tuple[str, ...], list[str]] = {}
    for parents, last in places:
        groups.setdefault(parents, []).append(last)
    return groups


def _reach(out: dict[str, Any], parents: tuple[str, ...]) -> dict[str, Any]:
    place = out
    for key in parents:
        below = place.get(key)
        if below is None:
            below = place[key] = {}
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
                yield keys, compile_expression(right)
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
