"""What differs between two JSON values, leaf by leaf, and values with their content hidden."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import Any, Literal, NamedTuple

from idgraph.model import paths

ABSENT = object()
"""Nothing there, as opposed to null."""


class Change(NamedTuple):
    """One leaf that differs. `path` is dotted, array elements are `[0]`; the root's path is empty."""

    kind: Literal["added", "removed", "changed"]
    path: str
    before: Any
    after: Any


def changes(before: Any, after: Any, path: str = "") -> Iterator[Change]:
    """The leaves in which two values differ, in the order of the second; empty objects and arrays count as
    leaves, and 1, 1.0 and true are three values."""
    if type(before) is type(after) and isinstance(before, dict | list) and (before and after):
        old, new = _parts(before), _parts(after)
        for key in [*new, *(key for key in old if key not in new)]:
            yield from changes(old.get(key, ABSENT), new.get(key, ABSENT), _joined(path, key))
    elif before is ABSENT:
        yield from (Change("added", below, None, leaf) for below, leaf in leaves(after, path))
    elif after is ABSENT:
        yield from (Change("removed", below, leaf, None) for below, leaf in leaves(before, path))
    elif isinstance(before, dict | list) or isinstance(after, dict | list):
        if before != after or type(before) is not type(after):
            yield from changes(before, ABSENT, path)
            yield from changes(ABSENT, after, path)
    elif type(before) is not type(after) or before != after:
        yield Change("changed", path, before, after)


def leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """All leaves of a value with their paths."""
    if isinstance(value, dict | list) and value:
        for key, below in _parts(value).items():
            yield from leaves(below, _joined(path, key))
    else:
        yield path, value


def masked(value: Any) -> Any:
    """A value of the same shape in which each leaf says only its kind; null stays."""
    match value:
        case dict():
            return {key: masked(below) for key, below in value.items()}
        case list():
            return [masked(below) for below in value]
        case str():
            return f"<text of {len(value)}>"
        case bool():
            return "<boolean>"
        case int():
            return "<integer>"
        case float() | Decimal():
            return "<decimal>"
    return value


def _parts(value: dict[str, Any] | list[Any]) -> dict[str | int, Any]:
    return dict(value.items() if isinstance(value, dict) else enumerate(value))


def _joined(path: str, key: str | int) -> str:
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{paths.escape(key)}" if path else paths.escape(key)
