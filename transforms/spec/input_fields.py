"""The fields of its input that a mapping spec reads: without one, an event is mapped to something else.

Found by trying, a few events and a few fields at a time, and remembered. Only paths are kept, and none with a key
that may have been made of a value.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from idgraph.model import paths
from idgraph.model.errors import TransformError
from idgraph.model.paths import Place
from idgraph.model.spec_use import MOST_FIELDS
from transforms.schema.detection import shaped_key
from transforms.spec.pointers import pointer

ENOUGH = 3
"""Events without whose field the output was the same, after which nobody tries it again."""
MOST_TRIES = 12
"""The fields of one event."""
MOST_KEYS = 40
"""An object with more is a map, whose keys are values."""
LONGEST_KEY = 64
LONGEST_PATH = 500
_MOST_DIGITS = 3
_VALUE = -2


class InputFields:
    """The fields that one compiled spec reads, as one process learns them."""

    def __init__(self) -> None:
        self._same: dict[str, int] = {}
        """By path, of how many events it made no difference; -1 once it did, -2 once a key of it was a value."""

    def look_at(self, payload: Any, transform: Callable[[Any], Any], is_value: Callable[[str], bool]) -> None:
        """Try some fields of an event that are not known yet. `is_value` says of a key whether it is made of a value."""
        if not isinstance(payload, dict):
            return
        found: dict[str, list[Place]] = {}
        for keys, _ in paths.places(payload, enters=_is_no_map, takes_empty=True):
            if not all(isinstance(each, int) or _is_name(each) for each in keys):
                continue
            path = pointer(*("*" if isinstance(each, int) else each for each in keys))
            if any(isinstance(each, str) and is_value(each) for each in keys):
                if path in self._same or len(self._same) < MOST_FIELDS:
                    self._same[path] = _VALUE
            elif len(path) <= LONGEST_PATH:
                found.setdefault(path, []).append(keys)
        tried = [path for path in found if 0 <= self._same.get(path, 0) < ENOUGH]
        tried = [path for path in tried if path in self._same or len(self._same) < MOST_FIELDS]
        try:
            whole = transform(copy.deepcopy(payload)) if tried else None
        except TransformError:
            return
        for path in tried[:MOST_TRIES]:
            if path not in self._same and len(self._same) >= MOST_FIELDS:
                continue
            makes_difference = _makes_difference(payload, found[path], transform, whole)
            self._same[path] = -1 if makes_difference else self._same.get(path, 0) + 1

    def known(self) -> dict[str, bool]:
        """The paths that are known well enough: whether the spec reads them."""
        return {path: same < 0 for path, same in self._same.items() if same == -1 or same >= ENOUGH}


def _makes_difference(
    payload: dict[str, Any], places: list[Place], transform: Callable[[Any], Any], whole: Any
) -> bool:
    without = copy.deepcopy(payload)
    for *above, last in reversed(places):
        at: Any = without
        for key in above:
            at = at[key]
        del at[last]
    try:
        return bool(transform(without) != whole)
    except TransformError:
        return True


def _is_no_map(_: Place, inside: Any) -> bool:
    return isinstance(inside, list) or len(inside) <= MOST_KEYS


def _is_name(key: str) -> bool:
    """Whether a key was made by whoever designed the event, not of a value."""
    digits = sum(map(str.isdigit, key))
    return 0 < len(key) <= LONGEST_KEY and digits <= _MOST_DIGITS and shaped_key(key) is None
