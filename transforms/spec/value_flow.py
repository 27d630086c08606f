"""Where a chain of operations may put the values of an event, and where it makes keys of them, as far as its spec reports.

A place is a tuple of keys, None for any key. Too much may be reported, as after a `remove` with wildcards. Not seen are
keys that a `*` takes from a text: these are found when an event comes (`transforms/schema/value_keys.py`).

`ways` says more: by which statements a value gets there, and which of them do more with it than put it elsewhere. So a
preview knows what of its numbers would say something of a value that its reader may not see.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, cast

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


class SpecLine(NamedTuple):
    """A line of a spec. Two with the same content do the same with a value that comes the same way. One that `computes` does more
    than to move the value as it is, or by a function of it alone that says no more of it than its form."""

    place: str
    content: str
    computes: bool = False


class Move(NamedTuple):
    """What an operation reads and where it puts it. A number in `target` is the key at this index of what was read."""

    source: Place
    target: tuple[str | int | None, ...]
    is_copy: bool
    """Whether all below the source stands below the target."""
    by: SpecLine


class _Test(NamedTuple):
    """A shift's look at a text: as the key that a pattern takes, or that a target gets (`is_key`)."""

    source: Place
    by: SpecLine
    is_key: bool = False

    def tests(self, held: Place) -> bool:
        """Whether it looks at a value, which has no keys."""
        return _reads(self.source, held) and (self.is_key or len(self.source) > len(held))


class _Step(NamedTuple):
    """An operation. One that replaces leaves nothing else of its input. One that `is_apart` puts nothing into what it moves: a part
    that stands at two places is one object, so that what is put into it at one place is at the other too."""

    moves: list[Move]
    replaces: bool
    removed: list[Place]
    by: SpecLine
    tests: list[_Test]
    is_apart: bool = True


Trail: TypeAlias = "frozenset[SpecLine]"


class Ways(NamedTuple):
    """Of a value: where it gets, with the statements that put it there, and the statements that do more with it, each with those
    that came before: it is the same in two specs only if what it does with the value is."""

    outputs: dict[Place, Trail]
    computed: set[tuple[Trail, SpecLine]]


class ValueFlow:
    """Of a spec that compiles."""

    def __init__(self, operations: Any) -> None:
        self.value_keys: list[tuple[str, str]] = []
        """Each place that makes a key of a value: its JSON pointer, and the path above the key, as far as it is fixed."""
        chain = operations if isinstance(operations, list) else [operations]
        self._steps = [
            self._step(entry, pointer(number) if isinstance(operations, list) else "", repr(chain[:number]))
            for number, entry in enumerate(chain)
        ]
        self.is_exact = all(step.is_apart for step in self._steps)
        for step in () if self.is_exact else self._steps:
            # What is anywhere in the whole may be anywhere in its copy.
            step.moves[:] = [each._replace(is_copy=each.is_copy and each.source != ()) for each in step.moves]

    def _step(self, entry: dict[str, Any], at: str, before: str) -> _Step:
        """`before` are the operations that make what this one gets."""
        name, spec = JOLT_CLASSES.get(entry["operation"], entry["operation"]), entry.get("spec") or {}
        whole = SpecLine(f"/operations{at}", repr(entry))
        if name == "shift":
            root, tests = _Level("root", ()), list[_Test]()
            moves = list(self._shifted(spec, [root, root], f"{at}/spec", tests, before))
            return _Step(moves, replaces=True, removed=[], by=whole, tests=tests, is_apart=_are_apart(moves))
        if name == "jmespath":
            from transforms.spec.jmespath.operation import targets_read

            moves = []
            for keys, source, is_copy, is_plain, text in targets_read(spec) if spec else ():
                there = f"/operations{at} at '{paths.join(keys)}'"
                by = SpecLine(there, text if is_plain else text + before, not is_plain)
                moves.append(Move(source, keys, is_copy, by))
            return _Step(moves, replaces=True, removed=[], by=whole, tests=[])
        if name.startswith("modify"):
            # Its statements see what those before them made.
            made = list(_modified(spec, (), whole.place, whole.content + before))
            by = SpecLine(whole.place, name)
            return _Step(made, replaces=False, removed=[], by=by, tests=[], is_apart=False)
        removed = list(_removed(spec, ())) if name == "remove" else []
        return _Step([], replaces=False, removed=removed, by=whole, tests=[])

    def reads(self, within: Iterable[Place] = ((),)) -> set[Place]:
        """The places of an event, at or below some, that the spec looks at for its output: what moves as a whole is followed back
        from what later operations take of it."""
        wanted: set[Place] = {()}
        for step in reversed(self._steps):
            back = [move._replace(source=cast("Any", move.target), target=move.source) for move in step.moves]
            found = {_moved(move, each) for move in back for each in (wanted if self.is_exact else {()})}
            wanted = {each for each in found if each is not None} | (set() if step.replaces else wanted)
        return {each for each in wanted if any(_covers(above, each) for above in within)}

    def outputs(self, place: Place) -> set[Place]:
        """Where the output may have what an event has at a place, or something made of it."""
        return set(self.ways(place).outputs)

    def ways(self, place: Place) -> Ways:
        """How a value that an event has at a place, a text, number or boolean, gets where `outputs` says."""
        held: dict[Place, Trail] = {place: frozenset()}
        computed: set[tuple[Trail, SpecLine]] = set()
        for step in self._steps:
            moved: dict[Place, Trail] = {}
            for each, trail in held.items():
                computed |= {(trail, test.by) for test in step.tests if test.tests(each)}
                for move in step.moves:
                    found = _moved(move, each)
                    if found is not None:
                        moved[found] = moved.get(found, trail) | trail | {move.by}
                        computed |= {(trail, move.by)} if move.by.computes else set()
                if not step.replaces:
                    moved[each] = moved.get(each, trail) | trail | {step.by}
            held = {
                each: trail
                for each, trail in moved.items()
                if not any(_covers(gone, each) for gone in step.removed)
            }
        return Ways(held, computed)

    def _shifted(
        self, spec: dict[str, Any], walk: list[_Level], at: str, tests: list[_Test], before: str
    ) -> Iterator[Move]:
        for spelled, right in spec.items():
            for key in split_or(spelled):
                element, here = parse_key(key), walk[-1]
                level = _level(element, walk)
                below = f"{at}{pointer(spelled)}"
                if not isinstance(element, Hash | At | Dollar):
                    tests.append(_Test(level.place, SpecLine(f"/operations{below}", repr(right) + before)))
                if isinstance(right, dict):
                    yield from self._shifted(right, [*walk, level], below, tests, before)
                    continue
                for number, path in enumerate(right if isinstance(right, list) else [right]):
                    if isinstance(path, str):
                        elements = parse_path(path) if path.strip() else ()
                        target = _target(elements, [*walk, level])
                        by = SpecLine(f"/operations{below}", path)
                        places = [each.place for each in (*walk, level)]
                        with_before = by._replace(content=path + before)
                        for part in elements:
                            index = part.index if isinstance(part, Array) else part
                            if isinstance(index, Transpose):
                                tests.append(_Test(_read(index, places), with_before, is_key=True))
                        self._note_keys(
                            path, target, f"{below}{pointer(number)}" if isinstance(right, list) else below
                        )
                        if not isinstance(element, Hash):
                            # The key that `$` puts may be a text, where keys are compared with one.
                            source = here.place if isinstance(element, Dollar) else level.place
                            is_copy = not isinstance(element, Dollar) and "[" not in path
                            yield Move(source, target, is_copy, by)

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
                is_above = level.place[-1:] == (None,) and source[: len(level.place)] == level.place
                found.append(level.key if level.key is not None or not is_above else len(level.place) - 1)
            case _:
                found.append(None)
    return tuple(found)


_READING = re.compile(r"@\([^()]*\)|@[^\s,()]+")
_FORM = "toLower|toUpper|trim|toString|toInteger|toLong|toDouble|stripLeadingZeros|epochMs|digits|hash"
_PLAIN = re.compile(rf"[^=@].*|(=(?:{_FORM})\()?(?:{_READING.pattern})(?(1)\))|=(?:{_FORM})|", re.DOTALL)


def _modified(spec: dict[str, Any], above: Place, at: str, others: str) -> Iterator[Move]:
    for spelled, right in spec.items():
        for option in split_or(spelled):
            element = parse_key(
                option[1:].removesuffix("?") if option[0] in "+~_" else option.removesuffix("?")
            )
            place = (*above, element.key if isinstance(element, Literal) else None)
            below = f"{at}{pointer(spelled)}"
            if isinstance(right, dict):
                yield from _modified(right, place, below, others)
                continue
            places = [(), *(place[:end] for end in range(len(place) + 1))]
            for value in right if isinstance(right, list) else [right]:
                text = value if isinstance(value, str) else repr(value)
                is_plain = _PLAIN.fullmatch(text) is not None
                by = SpecLine(below, text if is_plain else text + others, not is_plain)
                yield Move(place, place, True, by)
                for reading in _READING.findall(text):
                    yield Move(_read(parse_transpose(reading), places), place, True, by)


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


def _are_apart(moves: list[Move]) -> bool:
    if not all(isinstance(key, str) for move in moves for key in (*move.source, *move.target)):
        return False
    targets = sorted(cast("Any", move.target) for move in moves)
    return all(below[: len(above)] != above for above, below in pairwise(targets))


def _reads(source: Place, held: Place) -> bool:
    pairs = zip(source, held, strict=False)
    return all(wanted is None or key is None or wanted == key for wanted, key in pairs)


def _moved(move: Move, held: Place) -> Place | None:
    """Where a move puts what stands at a place; None if it does not read it."""
    if not _reads(move.source, held):
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
