"""How large a spec is once every `a|b` stands for its keys, counted before any of them is read.

`{"a|b": {"a|b": ...}}` doubles with each level: a short spec could stand for millions of keys.
"""

from __future__ import annotations

import re
from typing import Any

from idgraph.model.errors import SpecError
from transforms.spec.jolt.text import split_or
from transforms.spec.operations import JOLT_CLASSES, WITH_ALTERNATIVES
from transforms.spec.pointers import pointer

MAX_KEY = 10_000
"""Characters of one key."""
_CHARACTERS_A_VALUE = 20
_TOKENS_A_VALUE = 2
_TOKEN = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`\\]|\\.)*`|\w+|\S""", re.DOTALL)
"""Of a JMESPath expression, whose tokens are what takes time to read."""


def check_size(entries: list[Any], most: int, single: bool = False) -> None:
    """Raises SpecError with a pointer if the operations hold too much, or a key that is too long."""
    left = most - len(entries)
    for index, entry in enumerate(entries):
        try:
            left = _counted(entry, left, most)
        except SpecError as error:
            raise error if single else error.under(pointer(index)) from None


def _counted(entry: Any, left: int, most: int) -> int:
    """What is left of the bound after one operation."""
    # A part, how often it is read, whether its keys may be alternatives, and where it stands.
    expressions = _operation(entry) == "jmespath"
    waiting: list[tuple[Any, int, bool, Any]] = [(entry, 1, False, None)]
    while waiting:
        part, times, splits, place = waiting.pop()
        if isinstance(part, str):
            left -= times * (len(part) // _CHARACTERS_A_VALUE)
            left -= len(_TOKEN.findall(part)) // _TOKENS_A_VALUE if expressions else 0
        for key, below in _items(part):
            at = (place, key)
            ways = times
            if isinstance(key, str):
                if len(key) > MAX_KEY:
                    raise SpecError(f"a key is longer than {MAX_KEY} characters", _pointer(place))
                ways *= max(1, len(split_or(key))) if splits else 1
                left -= times * (len(key) // _CHARACTERS_A_VALUE)
            left -= ways
            if left < 0:
                _refuse(most, at, ways)
            splits_below = splits or (
                place is None and key == "spec" and _operation(entry) in WITH_ALTERNATIVES
            )
            waiting.append((below, ways, splits_below, at))
        if left < 0:
            _refuse(most, place, times)
    return left


def _items(part: Any) -> Any:
    if isinstance(part, dict):
        return part.items()
    return enumerate(part) if isinstance(part, list) else ()


def _operation(entry: Any) -> str:
    """The name of an operation; empty if it has none."""
    name = entry.get("operation") if isinstance(entry, dict) else None
    return JOLT_CLASSES.get(name, name) if isinstance(name, str) else ""


def _refuse(most: int, place: Any, times: int) -> None:
    """The whole operation is to blame, unless alternatives make much of little."""
    message = f"the spec is too large: more than {most} keys, elements and texts"
    if times == 1:
        raise SpecError(message)
    raise SpecError(f"{message}, where each 'a|b' counts as its keys with all that is below", _pointer(place))


def _pointer(place: Any) -> str:
    keys: list[Any] = []
    while place is not None:
        place, key = place
        keys.append(key)
    return pointer(*reversed(keys))
