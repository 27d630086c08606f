"""Where a chain of operations may put the values of an event, and where it makes keys of them, as far as its spec reports.

A place is a tuple of keys, None for any key, and stands for all below it. Too much may be reported, as after a `remove` with
wildcards. Not seen are keys that a `*` takes from a text: these are found when an event comes
(`transforms/schema/value_keys.py`).

Operations do not copy: what one puts into an object is wherever the object stands. So it is followed back to where the
object came from, in this operation and those before it, and on from there.

`ways` says more: by which statements a value gets there, and which of them do more with it than put it elsewhere. So a
preview knows what of its numbers would say something of a value that its reader may not see.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise, takewhile
from math import inf
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

from idgraph.model import paths
from transforms.spec.jolt.elements import (
    Amp,
    Array,
    At,
    Dollar,
    Element,
    Hash,
    Literal,
    Reference,
    Transpose,
    parse_key,
    parse_path,
    parse_transpose,
)
from transforms.spec.jolt.scalars import split_or
from transforms.spec.jolt.stars import Star
from transforms.spec.operations import JOLT_CLASSES
from transforms.spec.pointers import pointer

Place: TypeAlias = "tuple[str | None, ...]"
_COLLECTED, _ELEMENT, _APPENDED = _ANY = -1, -2, -3
"""Elements of arrays: one of several values that were put at one place, one that is not known, and one that nothing else is put
at. `_element` is one whose index is known."""
_MOST_PLACES, _MOST_ARRAYS, _MOST_COLLECTED = 200, 5, 20
"""Beyond them a value may be anywhere, and where the operation puts something: an object may be put into itself."""


class _Wildcard:
    """A key of a spec that takes several keys."""

    def __init__(self, element: Element, but: Container[str] = ()) -> None:
        self._element, self._but = element, but

    def takes(self, key: str) -> bool:
        is_other = isinstance(self._element, Star) and self._element.match(key) is None
        return not is_other and key not in self._but


_Key: TypeAlias = "str | int | _Wildcard | None"
_Keys: TypeAlias = "tuple[_Key, ...]"


class SpecLine(NamedTuple):
    """A line of a spec. Two with the same content do the same with a value that comes the same way. One that `computes` does more
    than to move the value as it is, or by a function of it alone that says no more of it than its form."""

    place: str
    content: str
    computes: bool = False


Trail: TypeAlias = "frozenset[SpecLine]"


class Move(NamedTuple):
    """What an operation reads and where it puts it. A number in `target` is the key at this index of what was read, or an
    element of an array."""

    source: _Keys
    target: _Keys
    is_copy: bool
    """Whether all below the source stands below the target."""
    by: SpecLine
    is_repeated: bool = False
    """Whether it may put several values at one place."""
    inverse: Move | None = None

    @property
    def may_move_objects(self) -> bool:
        """Or else it makes texts and numbers only."""
        return self.is_copy or self.by.computes


class _Test(NamedTuple):
    """A shift's look at a text: as the key that a pattern takes, or that a target gets (`is_key`)."""

    source: _Keys
    by: SpecLine
    is_key: bool = False

    def tests(self, held: _Keys) -> bool:
        """Whether it looks at a value that stands at a place it reads: that has no keys."""
        return self.is_key or len(self.source) > len(held)


_Read = TypeVar("_Read", Move, _Test)


class _Index(Generic[_Read]):
    """What reads, by the place."""

    def __init__(self, reads: Iterable[_Read]) -> None:
        self._here: list[_Read] = []
        self._names: dict[_Key, _Index[_Read]] = {}
        self._others: dict[_Key, _Index[_Read]] = {}
        for each in reads:
            at = self
            for key in each.source:
                below = at._names if isinstance(key, str) else at._others
                at = below.setdefault(key, _Index(()))
            at._here.append(each)

    def reading(self, place: _Keys, below: bool = True, by_pattern: bool = True) -> Iterator[_Read]:
        """Those that read what is at a place, above or `below` it. Without `by_pattern` a wildcard takes all keys."""
        yield from self._here
        if place or below:
            first = place[0] if place else None
            found: Iterable[_Key] = self._names
            if isinstance(first, str):
                found = (first,) if first in self._names else ()
            for key in (*found, *self._others):
                index = self._names.get(key) or self._others[key]
                if _may_be(key, first) or (isinstance(key, _Wildcard) and not by_pattern):
                    yield from index.reading(place[1:], below, by_pattern)


class _Put(NamedTuple):
    """A place before the operation of a number. What stands there was put at the first keys, `depth` of them: the objects above
    may stand elsewhere too. 0 for what no operation put into an object."""

    number: int
    place: _Keys
    known: int = -1
    """How many keys lead to the object that it came with: where that came from is known."""
    depth: float = 0


@dataclass
class _Step:
    """An operation. One that replaces leaves nothing else of its input. One that `collects` makes an array of two values for one
    place."""

    moves: list[Move]
    by: SpecLine
    replaces: bool = True
    removed: Sequence[Place] = ()
    tests: Sequence[_Test] = ()
    collects: bool = False
    may_get_shared: bool = False
    """Whether something stands at two places already before it."""

    def __post_init__(self) -> None:
        self.sources, self.tested = _Index(self.moves), _Index(self.tests)
        self.inverses = _Index(each.inverse for each in self.moves if each.inverse is not None)

    @cached_property
    def shared(self) -> set[Move | None]:
        """The inverse moves of what several moves read: it may stand at two places behind the operation."""
        return {
            each.inverse
            for each in self.moves
            if each.is_repeated or not self.replaces or sum(1 for _ in self.sources.reading(each.source)) > 1
        }

    @cached_property
    def everything(self) -> tuple[Trail, set[_Keys]]:
        """All statements, and where they put something, or anywhere."""
        made = (_carried(move, _Put(0, ()), 0).place for move in self.moves)
        return frozenset({self.by, *(move.by for move in self.moves)}), {(None,), *made}

    def forward(self, put: _Put, only_objects: bool) -> Iterator[tuple[_Put, SpecLine]]:
        """Where what was put gets, by itself or with an object that it was put into."""
        for move in self.sources.reading(put.place, by_pattern=put.depth > 0):
            if put.depth > len(move.source) or not only_objects:
                made = _carried(move, put, 1)
                yield made, move.by
                if self.collects and all(map(_may_be, move.source, put.place)):
                    yield from ((each, move.by) for each in self._collected(move, made))
        if not self.replaces:
            yield put._replace(number=put.number + 1), self.by

    def back(self, put: _Put) -> Iterator[_Put]:
        """Where the objects came from that it was put into."""
        for move in self.inverses.reading(put.place):
            if put.depth > len(move.source) != put.known and move.may_move_objects:
                yield _carried(move, put, -1)
        if not self.replaces:
            yield put._replace(number=put.number - 1)

    def _collected(self, move: Move, put: _Put) -> Iterator[_Put]:
        """Where it is in the arrays that come of what a move and others put at one place, or in those that others put there."""
        end, own = len(move.target), None if move.is_repeated else move.inverse
        others = [each for each in self.inverses.reading(put.place, below=False) if each is not own]
        ends = {len(each.source) for each in others}
        if any(each is not own for each in self.inverses.reading(put.place[:end])):
            ends.add(end)
        # Arrays that others put there: of one that stands nowhere else nothing more is to be known.
        arrays = [
            each
            for each in others
            if len(each.source) == end
            and each.may_move_objects
            # What is put into a part of itself never comes out.
            and each.target[: len(move.source)] != move.source
            and (self.may_get_shared or each in self.shared)
        ]
        if len(arrays) > _MOST_COLLECTED:
            arrays = []
            yield _Put(put.number, (None,))
        found, is_deep = [put], len(ends) > _MOST_ARRAYS
        for at in [min(ends)] if is_deep else sorted(ends, reverse=True):
            for number, keys, *_ in tuple(found):
                made = _Put(number, (*keys[:at], _COLLECTED, *keys[at:]), depth=at)
                if keys[at : at + 2] == (_COLLECTED, _COLLECTED) or is_deep:
                    made = _Put(number, keys[: at + 2], depth=inf)
                found.append(made)
                for each in arrays if at == end else ():
                    yield _carried(each, made._replace(depth=at + 1), -1)
        yield from found[1:]


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
        for before, step in pairwise(self._steps):
            step.may_get_shared = before.may_get_shared or bool(before.shared)
        self.is_exact = all(step.replaces and _are_apart(step.moves) for step in self._steps)

    def _step(self, entry: dict[str, Any], at: str, before: str) -> _Step:
        """`before` are the operations that make what this one gets."""
        name, spec = JOLT_CLASSES.get(entry["operation"], entry["operation"]), entry.get("spec") or {}
        whole = SpecLine(f"/operations{at}", repr(entry))
        if name == "shift":
            root, tests = _Level("root", ()), list[_Test]()
            moves = list(self._shifted(spec, [root, root], f"{at}/spec", tests, before))
            return _Step(moves, whole, tests=tests, collects=True)
        if name == "jmespath":
            from transforms.spec.jmespath.operation import targets_read

            moves = []
            for keys, source, is_copy, is_plain, text in targets_read(spec) if spec else ():
                there = f"/operations{at} at '{paths.join(keys)}'"
                by = SpecLine(there, text if is_plain else text + before, not is_plain)
                moves.append(_move(source, keys, is_copy, by))
            return _Step(moves, whole)
        if name.startswith("modify"):
            # Its statements see what those before them made.
            made = list(_modified(spec, (), whole.place, whole.content + before))
            return _Step(made, SpecLine(whole.place, name), replaces=False)
        if name == "cardinality":
            made = [_move(*move, True, whole) for move in _adjusted(spec, ())]
            return _Step(made, whole, replaces=False)
        removed = list(_removed(spec, ())) if name == "remove" else []
        # The elements behind one that is removed have other indexes then.
        arrays = [(*each[:-1], _ELEMENT) for each in removed if each[-1] and each[-1].isdecimal()]
        return _Step([_move(each, each, True, whole) for each in arrays], whole, False, removed)

    def reads(self, within: Iterable[Place] = ((),)) -> set[Place]:
        """The places of an event, at or below some, that the spec looks at for its output: what moves as a whole is followed back
        from what later operations take of it."""
        wanted: set[Place] = {()}
        for step in reversed(self._steps):
            followed = wanted if self.is_exact else {()}
            found = {
                tuple(map(_named, _carried(move, _Put(0, place), 0).place))
                for place in followed
                for move in step.inverses.reading(place)
            }
            wanted = found | (set() if step.replaces else wanted)
        return {each for each in wanted if any(_covers(above, each) for above in within)}

    def outputs(self, place: Place) -> set[Place]:
        """Where the output may have what an event has at a place, or something made of it."""
        return set(self.ways(place).outputs)

    def ways(self, place: Place) -> Ways:
        """How a value that an event has at a place, a text, number or boolean, gets where `outputs` says."""
        held: dict[_Keys, Trail] = {place: frozenset()}
        computed: set[tuple[Trail, SpecLine]] = set()
        for number, step in enumerate(self._steps):
            followed = self._followed(number, held)
            for (at, each), trail in followed.items():
                if at == number:
                    computed |= {
                        (trail, test.by)
                        for test in step.tested.reading(each, by_pattern=False)
                        if test.tests(each)
                    }
                    computed |= {
                        (trail, move.by)
                        for move in step.sources.reading(each, by_pattern=False)
                        if move.by.computes
                    }
            held = {
                each: trail
                for (at, each), trail in followed.items()
                if at > number and not any(_covers(gone, each) for gone in step.removed)
            }
        outputs: dict[Place, Trail] = {}
        for each, trail in held.items():
            whole = _whole(each)
            outputs[whole] = trail | outputs[whole] if whole in outputs else trail
        return Ways(outputs, computed)

    def _followed(self, number: int, held: dict[_Keys, Trail]) -> dict[tuple[int, _Keys], Trail]:
        """Where a value is before and after an operation, and where those before it had the objects that it is put into."""
        step, seen = self._steps[number], dict[tuple[int, _Keys, int], tuple[float, Trail]]()
        todo = OrderedDict({(number, place, -1): (0.0, trail) for place, trail in held.items()})
        most = len(held) + _MOST_PLACES
        while todo:
            (at, place, known), (depth, trail) = todo.popitem(last=False)
            seen[at, place, known] = depth, trail
            most -= at <= number or known >= 0
            if most < 0:
                lines, made = step.everything
                trail, after = lines.union(*held.values()), made if step.replaces else made | held.keys()
                return {(number, ()): trail} | {(number + 1, each): trail for each in after}
            put = _Put(at, place, known, depth)
            found = self._steps[at].forward(put, only_objects=at < number) if at <= number else ()
            back = self._steps[at - 1].back(put) if at and depth else ()
            for each, more in (
                *((each, trail | {by}) for each, by in found),
                *((each, trail) for each in back),
            ):
                before = todo.get(each[:3]) or seen.get(each[:3]) or (each.depth, more)
                merged = max(each.depth, before[0]), before[1] | more
                if seen.get(each[:3]) != merged:
                    todo[each[:3]] = merged
        followed: dict[tuple[int, _Keys], Trail] = {}
        for (at, place, _), (_, trail) in seen.items():
            followed[at, place] = trail | followed[at, place] if (at, place) in followed else trail
        return followed

    def _shifted(
        self, spec: dict[str, Any], walk: list[_Level], at: str, tests: list[_Test], before: str
    ) -> Iterator[Move]:
        for spelled, right in spec.items():
            for key in split_or(spelled):
                element, here = parse_key(key), walk[-1]
                level = _level(element, walk, spec)
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
                            yield _move(
                                source,
                                target,
                                not isinstance(element, Dollar),
                                by,
                                _is_repeated(elements, [*walk, level]),
                            )

    def _note_keys(self, path: str, target: _Keys, at: str) -> None:
        if any(isinstance(each, Transpose) for each in (parse_path(path) if path.strip() else ())):
            fixed = [each for each in _whole(target[: target.index(None)]) if isinstance(each, str)]
            self.value_keys.append((at, paths.join(fixed)))


class _Level(NamedTuple):
    key: _Key
    place: _Keys
    whole: int = 0
    """Another group that has all of the key."""


def _level(element: Element, walk: Sequence[_Level], beside: Iterable[str]) -> _Level:
    here = walk[-1]
    match element:
        case Literal(key):
            return _Level(key, (*here.place, key))
        case Hash(text):
            return _Level(text, here.place)
        case At() | Dollar():
            return here
        case Transpose():
            return here._replace(place=_read(element, [each.place for each in walk]))
    # A key of the spec goes before a pattern that takes it too.
    keys = [parse_key(key) for spelled in beside for key in split_or(spelled)]
    wildcard = _Wildcard(element, {each.key for each in keys if isinstance(each, Literal)})
    return _Level(wildcard, (*here.place, wildcard), isinstance(element, Star) and element.groups == 1)


def _read(element: Transpose, places: Sequence[_Keys]) -> _Keys:
    above = places[-1 - element.up] if element.up < len(places) else ()
    return above + tuple(each.key if isinstance(each, Literal) else None for each in element.path or ())


def _target(elements: Sequence[Element], walk: Sequence[_Level]) -> _Keys:
    found: list[_Key] = []
    for element in elements:
        match element:
            case Literal(key):
                found.append(key)
            case Array(index):
                found.append(_element(index))
            case Amp((reference,)) if not isinstance(reference, str) and reference.group == 0:
                found.append(walk[-1 - reference.up].key if reference.up < len(walk) else None)
            case _:
                found.append(None)
    return tuple(found)


def _is_repeated(elements: Sequence[Element], walk: Sequence[_Level]) -> bool:
    """Whether several keys that a wildcard takes may give one target: no reference has all of the key."""
    tokens = [each for part in elements for each in getattr(part, "tokens", (getattr(part, "index", None),))]
    references = [each for each in tokens if isinstance(each, Reference) and each.up < len(walk)]
    named = {walk[-1 - each.up].key for each in references if each.group in (0, walk[-1 - each.up].whole)}
    return any(isinstance(each.key, _Wildcard) and each.key not in named for each in walk)


def _move(source: _Keys, target: _Keys, is_copy: bool, by: SpecLine, is_repeated: bool = False) -> Move:
    inverse = Move(target, _known(source, target), is_copy, by)
    return Move(source, _known(target, source), is_copy, by, is_repeated, inverse)


def _known(keys: _Keys, within: _Keys) -> _Keys:
    """With the index in others, or None, for a wildcard."""
    return tuple(
        key if not isinstance(key, _Wildcard) else within.index(key) if key in within else None
        for key in keys
    )


_READING = re.compile(r"@\([^()]*\)|@[^\s,()]+")
_FORM = "toLower|toUpper|trim|toString|toInteger|toLong|toDouble|stripLeadingZeros|epochMs|digits|hash"
_PLAIN = re.compile(rf"[^=@].*|(=(?:{_FORM})\()?(?:{_READING.pattern})(?(1)\))|=(?:{_FORM})|", re.DOTALL)


def _modified(spec: dict[str, Any], above: _Keys, at: str, others: str) -> Iterator[Move]:
    for spelled, right in spec.items():
        for option in split_or(spelled):
            element = parse_key(
                option[1:].removesuffix("?") if option[0] in "+~_" else option.removesuffix("?")
            )
            key = _element(element.index) if isinstance(element, Array) else _Wildcard(element)
            place = (*above, element.key if isinstance(element, Literal) else key)
            below = f"{at}{pointer(spelled)}"
            if isinstance(right, dict):
                yield from _modified(right, place, below, others)
                continue
            places = [(), *(place[:end] for end in range(len(place) + 1))]
            for value in right if isinstance(right, list) else [right]:
                text = value if isinstance(value, str) else repr(value)
                is_plain = _PLAIN.fullmatch(text) is not None
                by = SpecLine(below, text if is_plain else text + others, not is_plain)
                yield _move(place, place, True, by)
                read = [_read(parse_transpose(each), places) for each in _READING.findall(text)]
                for each in read:
                    yield _move(each, place, is_plain, by)
                for each in (*read, place) if "squash" in text.casefold() else ():
                    # It shortens the arrays that it is given.
                    yield _move(each, (*each, None), False, by)


def _adjusted(spec: dict[str, Any], above: _Keys) -> Iterator[tuple[_Keys, _Keys]]:
    """What a `cardinality` moves: one of several values to the place of all, or a value into an array of it."""
    for spelled, right in spec.items():
        for key in split_or(spelled):
            element = parse_key(key)
            keys = element.key if isinstance(element, Literal) else _Wildcard(element)
            place = above if isinstance(element, At) else (*above, keys)
            if isinstance(right, dict):
                yield from _adjusted(right, place)
            else:
                yield (place, (*place, _element(0))) if right == "MANY" else ((*place, _ELEMENT), place)


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
    if not all(isinstance(key, str) for move in moves for key in (*move.source, *_whole(move.target))):
        return False
    targets = sorted(cast("Any", _whole(move.target)) for move in moves)
    return all(below[: len(above)] != above for above, below in pairwise(targets))


def _element(index: object) -> int:
    return _APPENDED if index is None else _APPENDED - 1 - index if isinstance(index, int) else _ELEMENT


def _whole(place: _Keys) -> Place:
    """Up to the first array, which is one value, but through those that may be."""
    keys = (key for key in place if key != _COLLECTED)
    return cast("Place", tuple(takewhile(lambda key: not isinstance(key, int) or key >= 0, keys)))


def _may_be(wanted: _Key, key: _Key) -> bool:
    if isinstance(wanted, _Wildcard):
        return not isinstance(key, str) or wanted.takes(key)
    if wanted is None or key is None or (isinstance(wanted, str) and isinstance(key, str)):
        return None in (wanted, key) or wanted == key
    if isinstance(wanted, str):
        wanted, key = key, wanted
    if isinstance(key, str):
        return key.isdecimal() and wanted in (*_ANY, _element(int(key)))
    return wanted != key if _APPENDED in (wanted, key) else wanted == key or wanted in _ANY or key in _ANY


def _named(key: _Key) -> str | None:
    return key if isinstance(key, str) else None


def _carried(move: Move, put: _Put, on: int) -> _Put:
    """Where a move puts what stands at a place that it reads, or in an object that it was put into."""
    held, inside = put.place, max(put.depth - len(move.source), 0)
    keys = [
        key if not isinstance(key, int) or key < 0 else _named(held[key]) if key < len(held) else None
        for key in move.target
    ]
    depth = len(move.target) + (inside if move.is_copy or not inside else inf)
    place = (*keys, *(held[len(move.source) :] if move.is_copy else ()))
    return _Put(put.number + on, place, len(keys) if inside and on == 1 else -1, depth)


def _covers(gone: Place, place: _Keys) -> bool:
    # A key that is not known may be another one, which stays.
    pairs = zip(gone, place, strict=False)
    return len(gone) <= len(place) and all(each is None or each == key for each, key in pairs)
