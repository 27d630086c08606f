"""Specs with one mistake: every node of a spec left out, replaced or renamed in turn."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

REPLACEMENTS: tuple[Any, ...] = (
    None,
    True,
    7,
    1.5,
    "",
    "&9",
    "=nope(",
    "a..b",
    "*[",
    "@(",
    [],
    {},
    [[]],
    {"": {}},
    {"*": 1},
)
NAMES = ("", "oops", "*", "&", "@", "a[", "[x]", "a|", "$(", "**", "\\", "~?")


def mutations(spec: Any) -> Iterator[Any]:
    """All of them, each a spec of its own; what is not changed is shared."""
    yield from REPLACEMENTS
    if isinstance(spec, dict):
        for key, below in spec.items():
            yield {name: part for name, part in spec.items() if name != key}
            for renamed in NAMES:
                yield {renamed if name == key else name: part for name, part in spec.items()}
            for mutated in mutations(below):
                yield spec | {key: mutated}
    elif isinstance(spec, list):
        for index, below in enumerate(spec):
            yield spec[:index] + spec[index + 1 :]
            for mutated in mutations(below):
                yield [*spec[:index], mutated, *spec[index + 1 :]]
