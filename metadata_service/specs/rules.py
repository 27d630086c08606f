"""Checks of a mapping spec before it is stored, so that it never reaches an event malformed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from idgraph.model import canonical
from idgraph.model.behaviour import DerivedDefinition
from idgraph.model.errors import SpecError
from idgraph.model.paths import escape, join, places, split
from idgraph.model.specs import SpecDefinition, SpecType
from transforms.spec.pointers import pointer

CompileSpec = Callable[[Any], object]
"""Compiles the operations of a spec; raises SpecError with a pointer into them."""


def packaged_compiler(operations: Any) -> object:
    """The compiler of `transforms`, imported when it is first needed."""
    from transforms import compile_spec

    return compile_spec(operations)


def check_spec(definition: SpecDefinition, compile_spec: CompileSpec) -> None:
    """Raises SpecError, its pointer seen from the definition, if the spec cannot be used."""
    try:
        _check_numbers(definition.operations)
        compile_spec(definition.operations)
    except SpecError as error:
        raise error.under("/operations") from error
    except RecursionError as error:
        raise SpecError("too deeply nested", "/operations") from error
    _check_type(definition)
    _check_places(definition)
    _check_evidence(definition)


def check_derived_paths(definition: SpecDefinition, derived: Iterable[DerivedDefinition]) -> None:
    """Raises SpecError if a line of the spec, which compiles, writes to the path of one of these derived attributes: such a value
    would never show."""
    from transforms.spec.output_tree import place_of

    for each in derived:
        place = place_of(definition.operations, each.path)
        if place is not None:
            raise SpecError(
                f"{each.path} is the path of the derived attribute {each.name}",
                place,
                "write to another path, or retire that attribute first",
            )


def check_payload(payload: Any, place: str) -> None:
    """Raises SpecError for what no event may hold, such as half of a surrogate pair."""
    try:
        canonical.encode(payload)
    except (ValueError, RecursionError):
        raise SpecError("not JSON as events have it", place) from None


def _check_numbers(operations: Any) -> None:
    # JSON has no infinity; Python's parser lets one in, and it would be stored as null.
    for keys, value in places(operations):
        if isinstance(value, float) and not math.isfinite(value):
            raise SpecError("not a JSON number", pointer(*keys))


def _check_type(definition: SpecDefinition) -> None:
    if definition.specification_type is SpecType.CHAIN:
        return
    wants_jmespath = definition.specification_type is SpecType.JMESPATH
    for place, name in _operation_names(definition.operations):
        if (name == "jmespath") is not wants_jmespath:
            raise SpecError(
                f"a spec of type {definition.specification_type} holds no operation {name!r}",
                place,
                "specification_type chain takes both kinds",
            )


def _operation_names(operations: Any) -> Iterator[tuple[str, str]]:
    if isinstance(operations, dict):
        yield "/operations/operation", str(operations.get("operation"))
        return
    for index, operation in enumerate(operations):
        if isinstance(operation, dict):
            yield f"/operations/{index}/operation", str(operation.get("operation"))


def _check_places(definition: SpecDefinition) -> None:
    named = [("/id", definition.id), ("/ordinal", definition.ordinal), ("/scope", definition.scope or None)]
    named.append(("/retracts", definition.retracts))
    named += [
        (f"/identifiers/{index}/path", place.path) for index, place in enumerate(definition.identifiers)
    ]
    for at, path in named:
        if path is None:
            continue
        keys = split(path)
        if join(keys) != path:
            raise SpecError("not a path: a backslash escapes only a dot or a backslash", at)
        if "" in keys:
            hint = f"a dot within a key is written {escape('.')}"
            raise SpecError("a path has no empty key", at, hint)


def _check_evidence(definition: SpecDefinition) -> None:
    links = (definition.evidence.links if definition.evidence is not None else None) or ()
    types = {place.type for place in definition.identifiers}
    for number, pair in enumerate(links):
        for side, name in enumerate(pair):
            if name not in types:
                hint = f"the types are {', '.join(sorted(types))}"
                raise SpecError(
                    "no identifier of this spec has this type", f"/evidence/links/{number}/{side}", hint
                )
        if set(pair) in map(set, links[:number]):
            raise SpecError("this pair is listed twice", f"/evidence/links/{number}")
