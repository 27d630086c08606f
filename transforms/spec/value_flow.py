"""Where a chain of operations may put the values of an event, and where it makes keys of them, as far as its spec reports.

A place is a tuple of keys, None for any key. Too much may be reported, as after a `remove` with wildcards. Not seen are
keys that a `*` takes from a text: these are found when an event comes (`transforms/schema/value_keys.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from idgraph.model import paths
from transforms.spec.jolt.elements import (
    Amp,
    Array,
    At,
    Dollar,
    Element,
    Hash,
    Literal,
    Transpose,
    parse_key,
    parse_path,
    parse_transpose,
)
from transforms.spec.jolt.scalars import split_or
from transforms.spec.operations import JOLT_CLASSES
from transforms.spec.pointers import pointer

Place: TypeAlias = "tuple[str | None, ...]"


class Move(NamedTuple):
    """What an operation reads and where it puts it. A number in `target` is the key at this index of what was read."""

    source: Place
    target: tuple[str | int | None, ...]
    is_copy: bool
    """Whether all below the source stands below the target."""


class _Step(NamedTuple):
    """An operation. One that replaces leaves nothing else of its input."""

    moves: list[Move]
    replaces: bool
    removed: list[Place]


class ValueFlow:
    """Of a spec that compiles."""

    def __init__(self, operations: Any) -> None:
        self.value_keys: list[tuple[str, str]] = []
        """Each place that makes a key of a value: its JSON pointer, and the path above the key, as far as it is fixed."""
        self._steps = [
            self._step(entry, pointer(number) if isinstance(operations, list) else "")
            for number, entry in enumerate(operations if isinstance(operations, list) else [operations])
        ]

    def _step(self, entry: dict[str, Any], at: str) -> _Step:
        name, spec = JOLT_CLASSES.get(entry["operation"], entry["operation"]), entry.get("spec") or {}
        if name == "shift":
            root = _Level("root", ())
            return _Step(list(self._shifted(spec, [root, root], f"{at}/spec")), replaces=True, removed=[])
        if name == "jmespath":
            from transforms.spec.jmespath.operation import targets_read

            read = targets_read(spec) if spec else ()
            moves = [Move(source, keys, is_copy) for keys, source, is_copy in read]
            return _Step(moves, replaces=True, removed=[])
        if name.startswith("modify"):
            return _Step(list(_modified(spec, ())), replaces=False, removed=[])
        return _Step([], replaces=False, removed=list(_removed(spec, ())) if name == "remove" else [])

    def reads(self) -> set[Place]:
        """The places of an event that the spec looks at."""
        found: set[Place] = set()
        for step in self._steps:
            found.update(move.source for move in step.moves)
            if step.replaces:
                break
        return found

    def outputs(self, place: Place) -> set[Place]:
        """Where the output may have what an event has at a place, or something made of it."""
        held = {place}
        for step in self._steps:
            moved = {
                found for each in held for move in step.moves if (found := _moved(move, each)) is not None
            }
            held = moved if step.replaces else held | moved
            held = {each for each in held if not any(_covers(gone, each) for gone in step.removed)}
        return held

    def _shifted(self, spec: dict[str, Any], walk: list[_Level], at: str) -> Iterator[Move]:
        for spelled, right in spec.items():
            for key in split_or(spelled):
                element, here = parse_key(key), walk[-1]
                level = _level(element, walk)
                below = f"{at}{pointer(spelled)}"
                if isinstance(right, dict):
                    yield from self._shifted(right, [*walk, level], below)
                    continue
                for number, path in enumerate(right if isinstance(right, list) else [right]):
                    if isinstance(path, str):
                        target = _target(parse_path(path) if path.strip() else (), [*walk, level])
                        self._note_keys(
                            path, target, f"{below}{pointer(number)}" if isinstance(right, list) else below
                        )
                        if not isinstance(element, Hash):
                            # The key that `$` puts may be a text, where keys are compared with one.
                            source = here.place if isinstance(element, Dollar) else level.place
                            yield Move(source, target, not isinstance(element, Dollar) and "[" not in path)

    def _note_keys(self, path: str, target: tuple[str | int | None, ...], at: str) -> None:
        if any(isinstance(each, Transpose) for each in (parse_path(path) if path.strip() else ())):
            fixed = [each for each in target[: target.index(None)] if isinstance(each, str)]
            self.value_keys.append((at, paths.join(fixed)))


class _Level(NamedTuple):
    key: str | None
    place: Place


def _level(element: Element, walk: Sequence[_Level]) -> _Level:
    here = walk[-1]
    match element:
        case Literal(key):
            return _Level(key, (*here.place, key))
        case Hash(text):
            return _Level(text, here.place)
        case At() | Dollar():
            return here
        case Transpose():
            return _Level(here.key, _read(element, [each.place for each in walk]))
    return _Level(None, (*here.place, None))


def _read(element: Transpose, places: Sequence[Place]) -> Place:
    above = places[-1 - element.up] if element.up < len(places) else ()
    return above + tuple(each.key if isinstance(each, Literal) else None for each in element.path or ())


def _target(elements: Sequence[Element], walk: Sequence[_Level]) -> tuple[str | int | None, ...]:
    """Up to the first array, which is one value."""
    source = walk[-1].place
    found: list[str | int | None] = []
    for element in elements:
        match element:
            case Literal(key):
                found.append(key)
            case Array():
                break
            case Amp((reference,)) if not isinstance(reference, str) and reference.group == 0:
                level = walk[-1 - reference.up] if reference.up < len(walk) else _Level(None, ())
                is_above = level.place and source[: len(level.place)] == level.place
                found.append(level.key if level.key is not None or not is_above else len(level.place) - 1)
            case _:
                found.append(None)
    return tuple(found)


_READING = re.compile(r"@\([^()]*\)|@[^\s,()]+")


def _modified(spec: dict[str, Any], above: Place) -> Iterator[Move]:
    for spelled, right in spec.items():
        for option in split_or(spelled):
            element = parse_key(
                option[1:].removesuffix("?") if option[0] in "+~_" else option.removesuffix("?")
            )
            place = (*above, element.key if isinstance(element, Literal) else None)
            if isinstance(right, dict):
                yield from _modified(right, place)
                continue
            places = [(), *(place[:end] for end in range(len(place) + 1))]
            for text in right if isinstance(right, list) else [right]:
                for reading in _READING.findall(text) if isinstance(text, str) else ():
                    yield Move(_read(parse_transpose(reading), places), place, is_copy=True)


def _removed(spec: Any, above: Place) -> Iterator[Place]:
    for spelled, right in spec.items() if isinstance(spec, dict) else ():
        for key in split_or(spelled):
            if "*" in key and key != "*":
                continue
            place = (*above, None if key == "*" else key.replace("\\", ""))
            if isinstance(right, dict):
                yield from _removed(right, place)
            else:
                yield place


def _moved(move: Move, held: Place) -> Place | None:
    """Where a move puts what stands at a place; None if it does not read it."""
    for wanted, key in zip(move.source, held, strict=False):
        if wanted is not None and key is not None and wanted != key:
            return None
    keys = [
        each if not isinstance(each, int) else held[each] if each < len(held) else None
        for each in move.target
    ]
    return (*keys, *(held[len(move.source) :] if move.is_copy else ()))


def _covers(gone: Place, place: Place) -> bool:
    # A key that is not known may be another one, which stays.
    pairs = zip(gone, place, strict=False)
    return len(gone) <= len(place) and all(each is None or each == key for each, key in pairs)
