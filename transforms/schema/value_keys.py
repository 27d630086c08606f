"""Keys of a mapped output that a spec made of values: `{"shift": {"name": "seen.@(1,name)"}}` makes one.

A key becomes part of a path, and paths are never sealed: such a key shows a value to everybody who sees the catalogue.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

_WORDS = re.compile(r"[\w-]+")
_SHORTEST_PART = 3
"""A value or a key with fewer characters is in other texts by chance."""


class ValueKeys:
    """Says which keys were made of values, by the event that a spec mapped. Cheap to make; asked for new paths only.

    A key is no value if the event has it as a key or as a part of one, if it is the place of an element of an array,
    or if the spec has its words. Any other key is a value if it equals, holds or is held by a value of the event,
    in whatever case. A value that a function changed beyond that, as by a hash, is not recognised.
    """

    def __init__(self, spec: Any) -> None:
        self._written = {word for text in _texts(spec) for word in (text, *_WORDS.findall(text))}

    def made_of(self, *events: Any) -> KeyTest:
        """The test of keys that come out of these objects."""
        return KeyTest(self._written, events)

    def found_in(self, event: Any) -> KeyTest:
        """The test of an event's own keys: one that is a value elsewhere in it is none that its designer chose."""
        test = KeyTest(self._written, ())
        test.add_values(event)
        return test


class KeyTest:
    """Whether keys were made of the values of one event."""

    def __init__(self, written: set[str], events: Iterable[Any]) -> None:
        self._written = written
        self._keys: set[str] = set()
        self._values: set[str] = set()
        self._longest = 0
        for event in events:
            self._keys.update(key.casefold() for key in _keys(event))
            self._longest = max(self._longest, _longest(event))
            self.add_values(event)

    def add_values(self, value: Any) -> None:
        """The scalars of a value count from now on."""
        self._values.update(text.casefold() for text in _scalars(value) if text)

    def __call__(self, key: str) -> bool:
        """Whether this key was made of a value."""
        folded = key.casefold()
        if key in self._written or self._written.issuperset(_WORDS.findall(key) or (key,)):
            return False
        if folded in self._keys or any(folded in known for known in self._keys):
            return False
        if key.isdecimal() and len(key) < _SHORTEST_PART * 2 and int(key) < self._longest:
            return False
        return folded in self._values or any(_is_part(folded, value) for value in self._values)


def _is_part(key: str, value: str) -> bool:
    return (len(value) >= _SHORTEST_PART and value in key) or (len(key) >= _SHORTEST_PART and key in value)


def _texts(value: Any) -> Iterator[str]:
    yield from _keys(value)
    yield from _scalars(value)


def _keys(value: Any) -> Iterator[str]:
    for each in _all(value):
        if isinstance(each, dict):
            yield from each


def _scalars(value: Any) -> Iterator[str]:
    for each in _all(value):
        if isinstance(each, str):
            yield each.strip()
        elif each is not None and not isinstance(each, bool | dict | list):
            yield str(each)


def _longest(value: Any) -> int:
    return max((len(each) for each in _all(value) if isinstance(each, list)), default=0)


def _all(value: Any) -> Iterator[Any]:
    """A value and all that is in it, however deep."""
    waiting = [value]
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
