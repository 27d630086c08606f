"""Makes a failing task small: what can be left out is left out."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

MOST_TRIES = 3000


def shrink(task: dict[str, Any], fails: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
    """The smallest task found that still fails. `fails` gets copies."""
    tries = 0
    smaller = True
    while smaller and tries < MOST_TRIES:
        smaller = False
        for candidate in _candidates(task):
            tries += 1
            if tries > MOST_TRIES:
                break
            if fails(copy.deepcopy(candidate)):
                task = candidate
                smaller = True
                break
    return task


def _candidates(task: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for part, fits in _KINDS.items():
        for simpler in simplifications(task.get(part)):
            if fits(simpler):
                yield {**task, part: simpler}


def _is_context(value: Any) -> bool:
    return value is None or isinstance(value, dict)


def _is_chain(spec: Any) -> bool:
    return (
        isinstance(spec, list)
        and bool(spec)
        and all(isinstance(entry, dict) and isinstance(entry.get("operation"), str) for entry in spec)
    )


_KINDS: dict[str, Callable[[Any], bool]] = {
    "spec": _is_chain,
    "input": lambda _value: True,
    "context": _is_context,
}


def simplifications(value: Any) -> Iterator[Any]:
    """Values with one thing less, the boldest first."""
    if isinstance(value, dict):
        for key in value:
            yield {other: below for other, below in value.items() if other != key}
        for key, below in value.items():
            for simpler in simplifications(below):
                yield {**value, key: simpler}
    elif isinstance(value, list):
        for index in range(len(value)):
            yield value[:index] + value[index + 1 :]
        for index, below in enumerate(value):
            for simpler in simplifications(below):
                yield [*value[:index], simpler, *value[index + 1 :]]
    if isinstance(value, dict | list):
        yield from value.values() if isinstance(value, dict) else value
        yield None
    elif isinstance(value, str) and len(value) > 1:
        yield from (value[:index] + value[index + 1 :] for index in range(min(len(value), 20)))
    elif value not in (None, 0, 1, "", "a") and not isinstance(value, bool):
        yield from (0, 1, None)
