"""Segments of profiles: what the projected profiles enter and leave is appended to the feed of changes."""

from __future__ import annotations

import hashlib
import time
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain, islice
from typing import Any, NamedTuple

from idgraph.model import canonical, paths
from idgraph.model.durations import TimeForm, anniversary_changes_at, anniversary_days
from idgraph.model.index import IndexDocument, IndexRules, ProfileIndex
from idgraph.model.ledger import CHANGES, Cause, Crossing
from idgraph.model.queries import (
    Anniversary,
    AnyOf,
    Clause,
    Condition,
    Query,
    Relative,
    Scalar,
    Term,
    absolute,
    absolute_clause,
    absolute_condition,
    is_relative,
    leaves,
    rewritten,
)
from idgraph.model.store import ProfileStore
from idgraph.model.timelines import DAY_MS, DueEntry
from idgraph.projection.behaviour import Behaviour, Deriving
from idgraph.projection.documents import behaviour_hash, documents_of
from idgraph.projection.moves import MOVES, States, moves_of, next_of, value_state
from idgraph.projection.parts import Pass
from merge.identity.components import Person
from merge.identity.persons import Persons

CROSSED_AT_ONCE = 1_000
"""Entries of the feed with one moment: readers have passed by a moment that is long ago."""

FURTHEST_MS = 200 * 366 * DAY_MS
"""A change that is further away is none."""

MOST_PASSED = 100
"""So many bounds that pass a value and change nothing are looked past; then the moment of the next is returned. Where a query asks
for an anniversary, which comes again each year, it is the next but one."""


_NOT_ANY_MORE = "segment no more"


def segment_marks(rules: IndexRules) -> dict[str, str]:
    """By name of a segment, the mark of the store that says that all profiles were evaluated for it as it is: by these policies,
    forms of times and definitions of the attributes that it asks for."""
    marks = {}
    for segment in rules.segments:
        asked = sorted({each.path or "" for each in leaves(segment.condition)})
        policies = [
            [path, rules.is_indexable(path), repr(rules.policies.get(path))] for path in asked if path
        ]
        policies += [[path, rules.times[path]] for path in asked if path in rules.times]
        content = [segment.version, segment.purpose, segment.attribute, policies]
        behaviour = rules.behaviour
        if any(paths.overlap(path, each.path) for path in asked for each in behaviour.derived):
            content.append(behaviour_hash(behaviour.activities, behaviour.derived, behaviour.models))
        hashed = hashlib.sha256(canonical.encode(content)).hexdigest()
        marks[segment.name] = f"segment {segment.name} {hashed}"
    return marks


def follows_clock(rules: IndexRules) -> bool:
    """Whether profiles can change without an event."""
    return bool(rules.behaviour.derived) or any(is_relative(each.condition) for each in rules.segments)


class _Evaluated(NamedTuple):
    """The state of a profile in each segment, by its document of this version, and those that report its changes.
    A profile that is gone has none."""

    version: int
    states: States
    reporting: Sequence[str] = ()
    is_gone: bool = False


class Segments:
    """The segments that profiles of one store and index are in. One per projection."""

    def __init__(
        self, store: ProfileStore, index: ProfileIndex, deriving: Deriving, now_ms: Callable[[], int]
    ) -> None:
        """`now_ms` is the moment as of which profiles are members."""
        self._now_ms = now_ms
        self._deriving = deriving
        self._store = store
        self._index = index
        self._evaluated: dict[str, _Evaluated] = {}
        self._causes: dict[tuple[str, str], Cause] = {}
        self._marks: list[Crossing] = []
        self._evaluating: tuple[Set[str], Pass] | None = None
        self._wanted: tuple[IndexRules, Mapping[str, str]] | None = None
        self._followed: dict[str, str] = {}
        """By name of a segment, its mark that the store remembers."""

    def clear(self) -> None:
        """Forget what was evaluated: a commit of the index begins."""
        self._evaluated.clear()
        self._causes.clear()
        self._marks.clear()

    def known(self, persons: Sequence[Person], rules: IndexRules) -> Collection[str]:
        """The ids of those whose older document is in the index, where a segment is new: `evaluate` is told of them."""
        if not self._new(rules):
            return ()
        versions = self._index.versions([each.id for each in persons])
        return {each.id for each in persons if versions.get(each.id, each.version) < each.version}

    def evaluate(
        self,
        persons: Sequence[Person],
        documents: Iterable[IndexDocument],
        rules: IndexRules,
        now_ms: int,
        known: Collection[str],
    ) -> dict[str, int]:
        """Note which segments these persons are in as of a moment, by their documents; one without a document is left out. Those
        that are `known` may enter and leave new segments for their definition, not for an event. Returns by id of a
        profile the least moment after it at which it enters or leaves one without an event, if there is one."""
        states_of = self._states_by(rules, now_ms)
        relative = [one.condition for one in rules.segments if is_relative(one.condition)]
        changes: dict[str, int] = {}
        for each in documents:
            states = states_of(each)
            moments = [changes_at(one, each, now_ms, rules.times, self._index.matches) for one in relative]
            if ahead := [at for at in moments if at is not None]:
                changes[each.id] = min(ahead)
            reporting = [one.name + CHANGES for one in rules.segments if one.changes and states[one.name]]
            self._evaluated[each.id] = _Evaluated(each.version, states, reporting)

        def evaluated(others: Sequence[Person]) -> dict[str, States]:
            behaviour = self._deriving.of(others, rules, now_ms)
            return {each.id: states_of(each) for each in documents_of(others, rules, behaviour).documents}

        present = [each for each in persons if each.id in self._evaluated]
        states_of_each = {each.id: self._evaluated[each.id].states for each in present}
        moves = moves_of(self._store, present, states_of_each, evaluated)
        self._causes.update(moves.causes)
        self._causes.update({(name, segment): "defined" for name in known for segment in self._new(rules)})
        self._marks += moves.marks
        return changes

    def _states_by(self, rules: IndexRules, now_ms: int) -> Callable[[IndexDocument], States]:
        conditions = {one.name: absolute(one.condition, now_ms, rules.times) for one in rules.segments}
        attributes = {one.name: one.attribute for one in rules.segments if one.attribute is not None}

        def states(document: IndexDocument) -> States:
            return {
                name: value_state(self._store.name, document, name, attributes[name])
                if name in attributes
                else int(self._index.matches(document, one))
                for name, one in conditions.items()
            }

        return states

    def leave(self, versions: Mapping[str, int]) -> None:
        """Profiles that are no more are in no segment, nor in one that comes into force again."""
        self._evaluated |= {name: _Evaluated(each, {}, is_gone=True) for name, each in versions.items()}

    def cross(self) -> None:
        """Append what the evaluated profiles entered and left, and where they changed, behind the commit of the index.

        Another projection may have put a later document meanwhile and found nothing to append. It did so before it looked,
        so that the index has that document by now, and the profile is projected again."""
        if not self._evaluated:
            return
        crossed_before = self._store.crossed(list(self._evaluated))
        crossings = []
        for name, (version, states, reporting, is_gone) in self._evaluated.items():
            numbers = crossed_before.get(name, {})
            exits = {each.removesuffix(CHANGES): 0 for each in numbers if is_gone and each != MOVES}
            for segment, state in {**states, **exits}.items():
                cause = self._causes.get((name, segment), "")
                crossings += next_of(name, segment, numbers, state, cause)
            newer = [each for each in reporting if numbers.get(each, 0) < version]
            crossings += [Crossing(0, name, each, version) for each in newer]
        if not crossings and not self._marks:
            return
        remaining = chain(crossings, self._marks)
        while batch := list(islice(remaining, CROSSED_AT_ONCE)):
            now = time.time_ns() // 1_000_000
            self._store.cross([each._replace(at_ms=now) for each in batch])
        if not crossings:
            return
        crossed = sorted({str(each.profile) for each in crossings})
        present = self._index.versions(crossed)
        overtaken = [
            name
            for name in crossed
            if (
                present.get(name, 0) > self._evaluated[name].version
                or (name not in present and not self._evaluated[name].is_gone)
            )
        ]
        if overtaken:
            self._store.enqueue(overtaken)
            stored = self._store.read(overtaken)
            self.clear()
            self.leave({name: 0 for name in overtaken if name not in stored})
            self.cross()

    def enter(self, ids: Sequence[str], rules: IndexRules, persons: Persons) -> None:
        """Append which segments the profiles of these ids are in, where the feed does not say so yet."""
        found = persons.named(ids, resolves_all=False).persons
        self.clear()
        # The others are in the outbox: members that have not joined would count in their version.
        settled = [
            each for each in found if all(part.stored.projected_into == each.id for part in each.members)
        ]
        now_ms = self._now_ms()
        behaviour = self._deriving.of(settled, rules, now_ms)
        documents = documents_of(settled, rules, behaviour).documents
        # Whoever has no document yet is projected for her events.
        known = self._index.versions([each.id for each in settled])
        changes = self.evaluate(settled, documents, rules, now_ms, known)
        self.plan(settled, behaviour, changes, rules)
        self.cross()

    def plan(
        self,
        persons: Sequence[Person],
        behaviour: Mapping[str, Behaviour],
        changes: Mapping[str, int],
        rules: IndexRules,
    ) -> None:
        """Let the outbox have these persons again when their derived attributes or their segments change without an event."""
        if not follows_clock(rules):
            return
        due = []
        for each in persons:
            derived = behaviour[each.id].changes_at if behaviour else None
            moments = [at for at in (derived, changes.get(each.id)) if at is not None]
            due.append(DueEntry(each.members[0].stored.id, min(moments, default=0), each.version))
        self._store.plan(due)

    def follow(self, rules: IndexRules, through_all: Callable[[], Pass], ends: float) -> bool:
        """Evaluate segments that are new, and that have changed, for all profiles: `through_all` begins a pass of `enter`.
        Returns whether the time until `ends` (`time.monotonic`) was enough; the next call goes on."""
        new = self._new(rules)
        if new:
            marks = set(new.values())
            if self._evaluating is None or self._evaluating[0] != marks:
                self._evaluating = marks, through_all()
            if not self._evaluating[1].has_ended(ends):
                return False
            for mark in marks:
                self._store.remember(mark)
            self._followed |= new
        self._evaluating = None
        return True

    def _new(self, rules: IndexRules) -> Mapping[str, str]:
        """The marks of the segments for which not all profiles were evaluated yet, by name."""
        if self._wanted is None or self._wanted[0] is not rules:
            self._wanted = rules, segment_marks(rules)
            # Should it come again, it is new.
            for name in [name for name, mark in self._followed.items() if self._wanted[1].get(name) != mark]:
                self._store.remember(_NOT_ANY_MORE, instead_of=self._followed.pop(name))
        new = {name: mark for name, mark in self._wanted[1].items() if name not in self._followed}
        if new:
            self._followed |= {name: mark for name, mark in new.items() if self._store.remembers(mark)}
        return {name: mark for name, mark in new.items() if name not in self._followed}


def changes_at(
    query: Query,
    document: IndexDocument,
    now_ms: int,
    times: Mapping[str, TimeForm],
    matches: Callable[[IndexDocument, Query], bool],
) -> int | None:
    """The least moment after `now_ms` (epoch milliseconds) at which it changes whether the document matches; None for never."""
    clauses = [
        (each, values)
        for each in leaves(query)
        if isinstance(each, Relative | Anniversary) and (values := _values(document, each.path))
    ]
    if not clauses:
        return None

    def as_of(at: int) -> Query:
        return rewritten(query, lambda each: _as_of(each, document, at, times))

    is_inside = matches(document, as_of(now_ms))
    at = now_ms
    comes_again = any(isinstance(each, Anniversary) for each, _ in clauses)
    for _ in range(2 if comes_again else MOST_PASSED):
        passing = [next_ for each, values in clauses for next_ in _passing(each, values, at, times)]
        if not passing:
            return None
        at = min(passing)
        if matches(document, as_of(at)) is not is_inside:
            return at
    return at


def _as_of(clause: Clause, document: IndexDocument, at: int, times: Mapping[str, TimeForm]) -> Condition:
    """`absolute_condition` for this document: of the days with an anniversary only those that it has."""
    if not isinstance(clause, Anniversary):
        return absolute_condition(clause, at, times)
    days, path = anniversary_days(str(clause.value), at), clause.path
    return AnyOf(tuple(Term(path, each) for each in _values(document, path) if each in days))


def _values(document: IndexDocument, path: str) -> list[Scalar]:
    value = document.fields.get(path, [])
    return value if isinstance(value, list) else [value]


def _passing(
    clause: Relative | Anniversary, values: list[Scalar], now_ms: int, times: Mapping[str, TimeForm]
) -> Iterator[int]:
    """For each value and bound, the least moment after now at which the bound, which only grows, passes the value; and at which an
    anniversary begins or ends."""
    if isinstance(clause, Anniversary):
        found = (anniversary_changes_at(str(clause.value), str(each), now_ms) for each in values)
        yield from (each for each in found if each is not None)
        return
    kind = (int, float) if times.get(clause.path, "milliseconds") == "milliseconds" else str
    for value in values:
        if not isinstance(value, kind) or isinstance(value, bool):
            continue
        for is_lower in (True, False):
            if (clause.lower if is_lower else clause.upper) is None:
                continue

            def has_passed(at: int, value: Scalar = value, is_lower: bool = is_lower) -> bool:
                plain = absolute_clause(clause, at, times)
                if is_lower:
                    return not _is_at_least(value, plain.lower, plain.include_lower)
                return not _is_at_least(value, plain.upper, not plain.include_upper)

            ahead = range(now_ms + 1, now_ms + FURTHEST_MS)
            if not has_passed(now_ms) and (place := bisect_left(ahead, True, key=has_passed)) < len(ahead):
                yield ahead[place]


def _is_at_least(value: Any, bound: Any, is_within: bool) -> bool:
    return bool(value >= bound if is_within else value > bound)
