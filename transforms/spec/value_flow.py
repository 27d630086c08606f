"""The places at which a chain of operations may put the values of an event or make keys of them, as far as its spec
says.

Too much may be reported, as after a `remove` with wildcards. Not seen are keys that a `*` takes from a text: these
are found when an event comes (`transforms/schema/value_keys.py`).

Operations do not copy: a value that one puts into an object is wherever the object stands. So it is followed back to
where the object came from, in this operation and those before it, and on from there.

`ways` says more: by which statements a value gets there, and which of them do more with it than put it elsewhere. So a
preview knows what of its numbers would say something of a value that its reader may not see.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import inf
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

from transforms.spec.operation_moves import (
    COLLECTED,
    Key,
    Keys,
    Move,
    OperationMoves,
    Place,
    SpecLine,
    Test,
    Wildcard,
    covers,
    if_known,
    may_be,
    value_place,
)
from transforms.spec.operations import moves_of
from transforms.spec.pointers import pointer

_MOST_PLACES, _MOST_ARRAYS, _MOST_COLLECTED = 200, 5, 20
"""Beyond them a value may be anywhere, and where the operation puts something: an object may be put into itself."""
Trail: TypeAlias = "frozenset[SpecLine]"

_Read = TypeVar("_Read", Move, Test)


class _Index(Generic[_Read]):
    """Moves or tests by the place that they read."""

    def __init__(self, reads: Iterable[_Read]) -> None:
        self._here: list[_Read] = []
        self._names: dict[Key, _Index[_Read]] = {}
        self._others: dict[Key, _Index[_Read]] = {}
        for each in reads:
            at = self
            for key in each.source:
                below = at._names if isinstance(key, str) else at._others
                at = below.setdefault(key, _Index(()))
            at._here.append(each)

    def reading(self, place: Keys, below: bool = True, by_pattern: bool = True) -> Iterator[_Read]:
        """Those that read what is at a place, above or `below` it. Without `by_pattern` a wildcard takes all keys."""
        yield from self._here
        if place or below:
            first = place[0] if place else None
            found: Iterable[Key] = self._names
            if isinstance(first, str):
                found = (first,) if first in self._names else ()
            for key in (*found, *self._others):
                index = self._names.get(key) or self._others[key]
                if may_be(key, first) or (isinstance(key, Wildcard) and not by_pattern):
                    yield from index.reading(place[1:], below, by_pattern)


class _Put(NamedTuple):
    """A place before the operation of a number. Its value was put at the first `depth` keys: the objects above may
    stand elsewhere too. 0: no operation put it into an object."""

    number: int
    place: Keys
    known: int = -1
    """The number of keys to the object that it came with, whose origin is known."""
    depth: float = 0


@dataclass
class _Step(OperationMoves):
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
    def everything(self) -> tuple[Trail, set[Keys]]:
        """All statements, and where they put something, or anywhere."""
        made = (_carried(move, _Put(0, ()), 0).place for move in self.moves)
        return frozenset({self.by, *(move.by for move in self.moves)}), {(None,), *made}

    def forward(self, put: _Put, only_objects: bool) -> Iterator[tuple[_Put, SpecLine]]:
        """The next places of a put value, by itself or with an object that it was put into."""
        for move in self.sources.reading(put.place, by_pattern=put.depth > 0):
            if put.depth > len(move.source) or not only_objects:
                made = _carried(move, put, 1)
                yield made, move.by
                if self.collects and all(map(may_be, move.source, put.place)):
                    yield from ((each, move.by) for each in self._collected(move, made))
        if not self.replaces:
            yield put._replace(number=put.number + 1), self.by

    def back(self, put: _Put) -> Iterator[_Put]:
        """The origins of the objects that it was put into."""
        for move in self.inverses.reading(put.place):
            if put.depth > len(move.source) != put.known and move.may_move_objects:
                yield _carried(move, put, -1)
        if not self.replaces:
            yield put._replace(number=put.number - 1)

    def _collected(self, move: Move, put: _Put) -> Iterator[_Put]:
        """Its places in the arrays that a move and others make by putting values at one place, or in those that
        others put there."""
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
            # A value that is put into a part of itself never comes out.
            and each.target[: len(move.source)] != move.source
            and (self.may_get_shared or each in self.shared)
        ]
        if len(arrays) > _MOST_COLLECTED:
            arrays = []
            yield _Put(put.number, (None,))
        puts, is_deep = [put], len(ends) > _MOST_ARRAYS
        for at in [min(ends)] if is_deep else sorted(ends, reverse=True):
            for number, keys, *_ in tuple(puts):
                made = _Put(number, (*keys[:at], COLLECTED, *keys[at:]), depth=at)
                if keys[at : at + 2] == (COLLECTED, COLLECTED) or is_deep:
                    made = _Put(number, keys[: at + 2], depth=inf)
                puts.append(made)
                for each in arrays if at == end else ():
                    yield _carried(each, made._replace(depth=at + 1), -1)
        yield from puts[1:]


class Ways(NamedTuple):
    """The ways of a value: its targets with the statements that put it there, and the statements that do more with
    it, each with those before. They are equal for two specs only if both do the same with the value."""

    outputs: dict[Place, Trail]
    computed: set[tuple[Trail, SpecLine]]


class ValueFlow:
    """The flow of values through a spec that compiles."""

    def __init__(self, operations: Any) -> None:
        chain = operations if isinstance(operations, list) else [operations]
        self._steps = [
            _Step(**vars(moves_of(entry, at, repr(chain[:number]))))
            for number, entry in enumerate(chain)
            for at in [pointer(number) if isinstance(operations, list) else ""]
        ]
        self.value_keys = [each for step in self._steps for each in step.value_keys]
        """Each place that makes a key of a value: its JSON pointer, and the path above the key, as far as it is fixed."""
        for before, step in pairwise(self._steps):
            step.may_get_shared = before.may_get_shared or bool(before.shared)
        self.is_exact = all(step.replaces and _are_apart(step.moves) for step in self._steps)

    def reads(self, within: Iterable[Place] = ((),)) -> set[Place]:
        """The places of an event, at or below some, that the spec looks at for its output: what moves as a whole is followed back
        from what later operations take of it."""
        needed: set[Place] = {()}
        for step in reversed(self._steps):
            followed = needed if self.is_exact else {()}
            sources = {
                tuple(map(if_known, _carried(move, _Put(0, place), 0).place))
                for place in followed
                for move in step.inverses.reading(place)
            }
            needed = sources | (set() if step.replaces else needed)
        return {each for each in needed if any(covers(above, each) for above in within)}

    def beside(self, output: Place) -> set[Place]:
        """Other places of the output that may have the value at a place, or something made of it."""
        places: set[Place] = {output}
        for step in reversed(self._steps):
            found = {
                tuple(map(if_known, _carried(move, _Put(0, place), 0).place))
                for place in places
                for move in step.inverses.reading(place)
            }
            places = found | (set() if step.replaces else places)
        return {each for place in places for each in self.outputs(place)} - {output}

    def outputs(self, place: Place) -> set[Place]:
        """Places of the output that may have an event's value at a place, or something made of it."""
        return set(self.ways(place).outputs)

    def ways(self, place: Place) -> Ways:
        """The ways of a text, number or boolean at a place of an event to the places that `outputs` gives."""
        held: dict[Keys, Trail] = {place: frozenset()}
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
                if at > number and not any(covers(gone, each) for gone in step.removed)
            }
        outputs: dict[Place, Trail] = {}
        for each, trail in held.items():
            whole = value_place(each)
            outputs[whole] = trail | outputs[whole] if whole in outputs else trail
        return Ways(outputs, computed)

    def _followed(self, number: int, held: dict[Keys, Trail]) -> dict[tuple[int, Keys], Trail]:
        """The places of a value before and after an operation, and earlier places of the objects that it is put
        into."""
        step, seen = self._steps[number], dict[tuple[int, Keys, int], tuple[float, Trail]]()
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
        followed: dict[tuple[int, Keys], Trail] = {}
        for (at, place, _), (_, trail) in seen.items():
            followed[at, place] = trail | followed[at, place] if (at, place) in followed else trail
        return followed


def _are_apart(moves: list[Move]) -> bool:
    if not all(isinstance(key, str) for move in moves for key in (*move.source, *value_place(move.target))):
        return False
    targets = sorted(cast("Any", value_place(move.target)) for move in moves)
    return all(below[: len(above)] != above for above, below in pairwise(targets))


def _carried(move: Move, put: _Put, on: int) -> _Put:
    """The target of a move for a value at a place that it reads, or in an object that it was put into."""
    held, inside = put.place, max(put.depth - len(move.source), 0)
    keys = [
        key if not isinstance(key, int) else if_known(held[key]) if key < len(held) else None
        for key in move.target
    ]
    depth = len(move.target) + (inside if move.is_copy or not inside else inf)
    place = (*keys, *(held[len(move.source) :] if move.is_copy else ()))
    return _Put(put.number + on, place, len(keys) if inside and on == 1 else -1, depth)
