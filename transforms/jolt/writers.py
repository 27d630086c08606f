"""Writing a value to a dotted path of the output: `shift`'s right side.

A place that is empty or null takes the value; a second value turns it into a list; a list grows.

Values are not copied into the output, so a later write may reach into a container that belongs to the
event (`"user": "u"` and `"ts": "u.ts"`). Jolt changes its input then, and what it reads afterwards shows
it. Here the event must stay as it is: the writer raises `BorrowedError`, and the whole operation runs
again on a copy that it may change. Most specs never come to that, and writers that no other writer can
meet (*exclusive* ones) need not look.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from model.errors import TransformError
from transforms.jolt.levels import Frame, Text
from transforms.jolt.output_paths import Kind, OutputPath
from transforms.limits import SpecLimits

Write: TypeAlias = Callable[[Any, Any, Frame], object]
"""Takes the value, the output and the frame."""


class BorrowedError(Exception):
    """A write would change a container that belongs to the event."""


@dataclass(frozen=True, slots=True)
class Writers:
    """Makes the writers of one spec. `rooted` says that the output is an object, from which paths start."""

    rooted: bool
    exclusive: frozenset[int]
    """The ids of the paths that no other path can meet."""
    limits: SpecLimits

    def keys(self, path: OutputPath) -> tuple[str, ...] | None:
        """The keys of an exclusive path, None for others."""
        return self._from_start(path).fixed_keys if id(path) in self.exclusive else None

    def write(self, path: OutputPath) -> Write:
        """The function that writes to `path`."""
        keys = self.keys(path)
        if keys is not None:
            return _exclusive_writer(keys)
        return _general_writer(self._from_start(path), self.limits)

    def _from_start(self, path: OutputPath) -> OutputPath:
        return path.without_root() if self.rooted else path


def _exclusive_writer(keys: Sequence[str]) -> Write:
    *parents, last = keys
    if not parents:

        def write_top(value: Any, out: Any, _frame: Frame) -> None:
            out[last] = value

        return write_top
    if len(parents) == 1:
        parent = parents[0]

        def write_second(value: Any, out: Any, _frame: Frame) -> None:
            below = out.get(parent)
            if below is None:
                out[parent] = {last: value}
            else:
                below[last] = value

        return write_second

    if len(parents) == 2:
        first, second = parents

        def write_third(value: Any, out: Any, _frame: Frame) -> None:
            below = out.get(first)
            if below is None:
                out[first] = {second: {last: value}}
                return
            place = below.get(second)
            if place is None:
                below[second] = {last: value}
            else:
                place[last] = value

        return write_third

    def write_deep(value: Any, out: Any, _frame: Frame) -> None:
        for key in parents:
            below = out.get(key)
            if below is None:
                below = out[key] = {}
            out = below
        out[last] = value

    return write_deep


def _second_writer(parent: str, last: str) -> Write:
    """The general writer for a path of two known keys, which is the most frequent one."""

    def write(value: Any, out: Any, frame: Frame) -> None:
        borrowed: set[int] | None = frame[0]
        place = out.get(parent)
        if place is None:
            out[parent] = {last: value}
        elif borrowed and id(place) in borrowed:
            raise BorrowedError
        elif type(place) is not dict:
            return
        else:
            present = place.get(last)
            if present is None:
                place[last] = value
            elif type(present) is not list:
                place[last] = [present, value]
            elif borrowed and id(present) in borrowed:
                raise BorrowedError
            else:
                present.append(value)
        if borrowed is not None and (type(value) is dict or type(value) is list):
            borrowed.add(id(value))

    return write


def _general_writer(path: OutputPath, limits: SpecLimits) -> Write:
    keys_known = path.fixed_keys
    if keys_known is not None and len(keys_known) == 2:
        return _second_writer(*keys_known)
    texts = path.texts
    *inner_kinds, last_kind = path.kinds
    # What is made where a step finds nothing depends on what the next step writes into.
    makers = [dict if kind is Kind.KEY else list for kind in path.kinds[1:]]
    inner = list(zip(inner_kinds, makers, strict=True))
    fixed = [text for text in texts if isinstance(text, str)]
    all_fixed = fixed if len(fixed) == len(texts) else None
    max_index = limits.max_index

    def write(value: Any, out: Any, frame: Frame) -> None:
        keys = all_fixed or _evaluated(texts, frame)
        if keys is None:
            return
        borrowed: set[int] | None = frame[0]
        place = out
        step = 0
        for kind, make in inner:
            found = _get(place, kind, keys[step])
            if found is None:
                found = make()
                if not _put(place, kind, keys[step], found, max_index):
                    return
            elif borrowed and id(found) in borrowed:
                raise BorrowedError
            place = found
            step += 1
        present = _get(place, last_kind, keys[step])
        if present is None:
            _put(place, last_kind, keys[step], value, max_index)
        elif type(present) is list:
            if borrowed and id(present) in borrowed:
                raise BorrowedError
            present.append(value)
        else:
            _put(place, last_kind, keys[step], [present, value], max_index)
        if borrowed is not None and (type(value) is dict or type(value) is list):
            borrowed.add(id(value))

    return write


def _evaluated(texts: Sequence[Text], frame: Frame) -> list[str] | None:
    keys: list[str] = []
    for text in texts:
        key = text if isinstance(text, str) else text(frame)
        if key is None:
            return None
        keys.append(key)
    return keys


def _get(place: Any, kind: Kind, key: str) -> Any:
    if kind is Kind.KEY:
        return place.get(key) if type(place) is dict else None
    if kind is Kind.APPEND or type(place) is not list:
        return None
    index = int(key)
    return place[index] if index < len(place) else None


def _put(place: Any, kind: Kind, key: str, value: Any, max_index: int) -> bool:
    """False if the place holds something that cannot take the value: Jolt drops the value then."""
    if kind is Kind.KEY:
        if type(place) is not dict:
            return False
        place[key] = value
        return True
    if type(place) is not list:
        return False
    if kind is Kind.APPEND:
        place.append(value)
        return True
    index = int(key)
    if index > max_index:
        raise TransformError(f"an array index is above {max_index}")
    if index >= len(place):
        place.extend([None] * (index + 1 - len(place)))
    place[index] = value
    return True
