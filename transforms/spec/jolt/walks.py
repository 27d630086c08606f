"""Going over an object that a `shift` may change meanwhile, as Java's iterators do.

What is added while the last key is at hand is not seen; what is added earlier is an error.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from idgraph.model.errors import TransformError
from transforms.spec.jolt.key_plans import Match


def items_walked(value: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The keys and values of an object. Raises TransformError if keys are added before the last one."""
    size = len(value)
    for key in list(value):
        if len(value) != size:
            raise TransformError("the spec adds keys to an object that it goes over")
        yield key, value[key]


def values_walked(value: dict[str, Any]) -> Collection[Any]:
    """The values of an object, as `items_walked` finds them."""
    return _Values(value)


class _Values(Collection[Any]):
    """A view whose size is known before it is walked."""

    def __init__(self, value: dict[str, Any]) -> None:
        self._value = value

    def __len__(self) -> int:
        return len(self._value)

    def __contains__(self, found: object) -> bool:
        return found in self._value.values()

    def __iter__(self) -> Iterator[Any]:
        return (found for _, found in items_walked(self._value))


def matches_walked(value: dict[str, Any], plan: list[Match]) -> Iterator[Match]:
    """Those keys of an object that a spec matches, as `items_walked` finds them."""
    matches = {match[0]: match for match in plan}
    return (matches[key] for key, _ in items_walked(value) if key in matches)
