"""Attribute paths: `payroll.insights.daysSinceSignup`.

A path joins the keys from the root of the unified schema to a leaf with dots. A backslash escapes a dot or a backslash
inside a key, so paths and tuples of keys correspond one to one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any


def escape(key: str) -> str:
    """One key, escaped for a path."""
    if "." in key or "\\" in key:
        return key.replace("\\", "\\\\").replace(".", "\\.")
    return key


def join(keys: Iterable[str]) -> str:
    """Keys to path."""
    return ".".join(map(escape, keys))


@lru_cache(maxsize=65_536)
def split(path: str) -> tuple[str, ...]:
    """Path to keys; `split(join(keys)) == keys` for every non-empty tuple of keys."""
    if "\\" not in path:
        return tuple(path.split("."))
    keys: list[str] = []
    key: list[str] = []
    characters = iter(path)
    for character in characters:
        if character == "\\":
            key.append(next(characters, "\\"))
        elif character == ".":
            keys.append("".join(key))
            key.clear()
        else:
            key.append(character)
    keys.append("".join(key))
    return tuple(keys)


@lru_cache(maxsize=65_536)
def ancestors(path: str) -> tuple[str, ...]:
    """All proper prefixes of a path, the longest first: `a.b.c` gives `('a.b', 'a')`."""
    keys = split(path)
    return tuple(join(keys[:length]) for length in range(len(keys) - 1, 0, -1))


def is_within(path: str, scope: str) -> bool:
    """Whether `path` is `scope` or below it; the empty scope contains every path."""
    return not scope or path == scope or path.startswith(scope + ".")


def overlap(one: str, other: str) -> bool:
    """Whether one path is the other one, above it or below it; the empty path is above all."""
    return is_within(one, other) or is_within(other, one)


Place = tuple[str | int, ...]
"""The keys and positions that lead to a value of a JSON document."""


def places(
    document: Any,
    above: Place = (),
    enters: Callable[[Place, Any], bool] = lambda *_: True,
    takes_empty: bool = False,
) -> Iterator[tuple[Place, Any]]:
    """The leaves of a JSON document: where each is, and its value. Objects and arrays have none that are empty, unless these are
    leaves too, nor those, by their place, that `enters` says no to."""
    if isinstance(document, dict | list) and (document or not (takes_empty and above)):
        if enters(above, document):
            for key, below in document.items() if isinstance(document, dict) else enumerate(document):
                yield from places(below, (*above, key), enters, takes_empty)
    else:
        yield above, document


def value_at(tree: Any, keys: tuple[str, ...]) -> Any:
    """The value of nested objects at these keys; None if there is none."""
    for key in keys:
        if type(tree) is not dict:
            return None
        tree = tree.get(key)
    return tree


def pointer(*keys: str | int) -> str:
    """Keys to a JSON pointer: `pointer("a/b", 0)` is `/a~1b/0`."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def located(location: Iterable[str | int], content: Any) -> list[str | int]:
    """The keys of a location in an error of pydantic that are in the content: not the names of union members, nor a key
    that is missing."""
    keys: list[str | int] = []
    for key in location:
        is_index = isinstance(content, list) and isinstance(key, int) and key < len(content)
        if is_index or (isinstance(content, dict) and key in content):
            keys.append(key)
            content = content[key]
    return keys
