"""Behaviour of persons: their timelines, and what is derived from these as of a moment.

Nothing here is ever stored as an attribute: after a merge, a split, an erasure or a new definition it is derived again, by
the same functions, for the index and for every answer.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakValueDictionary

from idgraph.model import paths
from idgraph.model.attributes import Reconciliation
from idgraph.model.behaviour import MODEL, ActivityDocument, BehaviourRules, DerivedDocument
from idgraph.model.durations import milliseconds
from idgraph.model.errors import DamagedStateError, SpecError
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.index import IndexRules
from idgraph.model.stamps import Stamp, epoch_ms
from idgraph.model.timelines import DAY_MS, EVERY_DAY, Entry, PageKey, Since, Timelines, count_before
from merge.identity.components import Person
from merge.resolution import Shown, shown, tree
from merge.timelines import UNREAD, Timeline, timeline

if TYPE_CHECKING:
    from transforms.behaviour.derivations import Derivation, Derived

log = logging.getLogger(__name__)


class Behaviour(NamedTuple):
    """The derived attributes of a person, sorted by path, and the least moment at which one of them changes without an event.
    `is_damaged` says that her timelines cannot be read: then there are none. `problems` says by path why a definition gives no value."""

    leaves: tuple[Shown, ...] = ()
    changes_at: int | None = None
    is_damaged: bool = False
    problems: tuple[tuple[str, str], ...] = ()

    def values(self) -> dict[str, Any]:
        """By path."""
        return {each.path: each.parts[0].value for each in self.leaves}


class AsOf(NamedTuple):
    """The values of derived attributes as of a moment, by path, and the paths of definitions whose result is incomplete."""

    values: Mapping[str, Any]
    incomplete: Sequence[str] = ()

    def is_complete(self, path: str) -> bool:
        """Whether no entry is missing that would count for the value at a path."""
        return not any(paths.is_within(path, each) or paths.is_within(each, path) for each in self.incomplete)


NOTHING_DERIVED = AsOf({})


_AFTER_ALL = 1 << 40
"""A day after all others: of the pages before it a store gives the beginnings alone."""

_PagesById = Mapping[str, Mapping[PageKey, bytes]]


class BehaviourReader:
    """Derives attributes of persons of one store, by the definitions of one snapshot. One per thread."""

    def __init__(
        self, store: Timelines, rules: BehaviourRules, policies: Mapping[str, Reconciliation]
    ) -> None:
        self._store = store
        self._rules = rules
        self._policies = policies
        self._activities = {each.name: each for each in rules.activities}
        self._derivations = [_derivation(each, rules.models) for each in rules.derived]
        self._since = {
            each.name: None if each.since is None else epoch_ms(each.since) for each in rules.activities
        }
        self._read = sorted({name for each in rules.derived for name in each.activities})
        self._asked = [path for each in self._derivations for path in each.reads if not self.derives(path)]

    def reading(self, asked: Collection[str]) -> BehaviourReader:
        """A reader of the same store that derives these attributes alone, with what they read of others."""
        needed = [each.definition.path for path in asked for each in self._needed(path)[0]]
        derived = tuple(each for each in self._rules.derived if each.path in needed)
        return BehaviourReader(self._store, self._rules._replace(derived=derived), self._policies)

    def derives(self, path: str) -> bool:
        """Whether the values at a path are those of a derived attribute."""
        return any(paths.is_within(path, each.definition.path) for each in self._derivations)

    def reads_plain(self, path: str) -> bool:
        """Whether a derived attribute also depends on attributes that events wrote: of these only the latest are known."""
        return self._needed(path)[1]

    def _needed(self, asked: str) -> tuple[list[Derivation], bool]:
        """The derivations that give what stands at a path, and whether they read attributes that events wrote."""
        needed: list[Derivation] = []
        remaining, reads_plain = [asked], False
        while remaining:
            path = remaining.pop()
            reads_plain = reads_plain or not self.derives(path)
            for each in self._derivations:
                own = each.definition.path
                if each not in needed and (paths.is_within(path, own) or paths.is_within(own, path)):
                    needed.append(each)
                    remaining += each.reads
        return needed, reads_plain

    @cached_property
    def of_timelines(self) -> BehaviourReader:
        """A reader of the derived attributes that depend on nothing but timelines."""
        return self.reading([path for path in self.paths() if not self.reads_plain(path)])

    def paths(self) -> list[str]:
        """The paths of the derived attributes."""
        return [each.definition.path for each in self._derivations]

    def known(self, person: Person, before_ms: int) -> list[Any]:
        """All that the attributes `of_timelines` are derived from as of a moment, as JSON data: fragments, and entries. Raises
        StoreError, DamagedStateError."""
        timelines = self._timelines(person, self._pages([person], self._read), self._read)
        entries = {
            name: [each for each in found.entries if each.time < before_ms]
            for name, found in timelines.items()
        }
        return [sorted(each.stored.id for each in person.members), entries]

    @property
    def is_empty(self) -> bool:
        """Whether nothing is derived."""
        return not self._derivations

    def of(self, persons: Sequence[Person], now_ms: int) -> dict[str, Behaviour]:
        """By id of the person, as of a moment in epoch milliseconds. Raises StoreError."""
        if self.is_empty:
            return {}
        since = self._since_days(now_ms)
        pages = self._pages(persons, self._read, since)
        found: dict[str, Behaviour] = {}
        for person in persons:
            try:
                [results] = self._results(person, pages, since, [now_ms])
                found[person.id] = self._behaviour(results)
            except DamagedStateError:
                found[person.id] = Behaviour(is_damaged=True)
        return found

    def as_of(
        self, persons: Sequence[Person], moments: Mapping[str, Collection[int]]
    ) -> Iterator[tuple[str, Mapping[int, AsOf]]]:
        """For each person (her id) by moment what is derived, as `of` has it. Each person's timelines are read once; one
        whose timelines are damaged is left out. Raises StoreError."""
        since = self._since_days(min(chain.from_iterable(moments.values()), default=0))
        pages = self._pages(persons, self._read, since)
        for person in persons:
            own = list(moments[person.id])
            try:
                results = self._results(person, pages, since, own, is_short=True)
            except DamagedStateError:
                continue
            yield person.id, dict(zip(own, map(self._as_of, results), strict=True))

    def _as_of(self, results: Sequence[Derived]) -> AsOf:
        values: dict[str, Any] = {}
        incomplete = []
        for each, result in zip(self._derivations, results, strict=True):
            values.update(_by_path(each.definition, result))
            if not result.is_complete:
                incomplete.append(each.definition.path)
        return AsOf(values, incomplete)

    def timelines(self, person: Person, activities: Collection[str]) -> dict[str, Sequence[Entry]]:
        """The entries of a person by activity, of those of these activities that are in force. Raises StoreError,
        DamagedStateError."""
        asked = sorted(self._activities.keys() & set(activities))
        found = self._timelines(person, self._pages([person], asked), asked)
        return {name: each.entries for name, each in found.items()}

    def newest(
        self, person: Person, activities: Collection[str], since: int | None, until: int | None
    ) -> Iterator[dict[str, Sequence[Entry]]]:
        """The newest entries of `timelines` at or after `since` and before `until` (epoch milliseconds): of ever more days, at last
        all. Raises StoreError, DamagedStateError."""
        asked = sorted(self._activities.keys() & set(activities))
        beginnings = self._pages([person], asked, dict.fromkeys(asked, _AFTER_ALL))
        days = sorted({key.day for some in beginnings.values() for key in some}, reverse=True)
        number = 1 + sum(until is not None and day * DAY_MS >= until for day in days)
        first = None if since is None else since // DAY_MS
        while True:
            day = days[number - 1] if number < len(days) else first
            if is_last := day is None or (first is not None and day <= first):
                day = first
            bound = dict.fromkeys(asked, day) if day is not None else EVERY_DAY
            found = self._timelines(person, self._pages([person], asked, bound), asked, bound)
            if any(each.read_from == UNREAD for each in found.values()):
                found, is_last = self._timelines(person, self._pages([person], asked), asked), True
            yield {
                name: each.entries[
                    0 if since is None else count_before(each.entries, since) : None
                    if until is None
                    else count_before(each.entries, until)
                ]
                for name, each in found.items()
            }
            if is_last:
                return
            number *= 4

    def _since_days(self, now_ms: int) -> Since:
        """By activity the first day whose entries matter as of a moment and later; none where all may."""
        first: dict[str, int | None] = {}
        for each in self._derivations:
            begin = each.reads_from(now_ms)
            for name in each.definition.activities:
                known = first.setdefault(name, begin)
                first[name] = None if begin is None or known is None else min(begin, known)
        return {name: begin // DAY_MS for name, begin in first.items() if begin is not None}

    def _pages(
        self, persons: Sequence[Person], activities: Collection[str], since: Since = EVERY_DAY
    ) -> _PagesById:
        ids = [each.stored.id for person in persons for each in person.members]
        return self._store.timelines(ids, activities, since) if activities else {}

    def _timelines(
        self, person: Person, pages: _PagesById, activities: Collection[str], since: Since = EVERY_DAY
    ) -> dict[str, Timeline]:
        own = [page for each in person.members for page in pages.get(each.stored.id, {}).items()]
        taken_back = _taken_back(person) if own else frozenset[tuple[str, str]]()
        found = {}
        for name in activities:
            activity = self._activities[name]
            days = [(key.day, page) for key, page in own if key.activity == name]
            found[name] = shown_timeline(activity, days, taken_back, since.get(name))
        return found

    def _results(
        self, person: Person, pages: _PagesById, since: Since, moments: Sequence[int], is_short: bool = False
    ) -> list[list[Derived]]:
        """The result of each derivation at each moment; with `is_short` only leaves and completeness. Days before those of `since`
        are read too, where a result may rest on them."""
        timelines = self._timelines(person, pages, self._read, since)
        results = self._results_at(person, timelines, moments, is_short)
        cut = {name for name, each in timelines.items() if each.read_from == self._whole_from(name, each)}
        if any(
            not each.is_settled(result) and not cut.isdisjoint(each.definition.activities)
            for found in results
            for each, result in zip(self._derivations, found, strict=True)
        ):
            timelines = self._timelines(person, self._pages([person], self._read), self._read)
            results = self._results_at(person, timelines, moments, is_short)
        return results

    def _whole_from(self, name: str, timeline: Timeline) -> int:
        """The time from which all entries that came are there."""
        return max(timeline.whole_from or 0, timeline.read_from or 0, self._since[name] or 0)

    def _behaviour(self, results: Sequence[Derived]) -> Behaviour:
        leaves = [
            leaf
            for each, result in zip(self._derivations, results, strict=True)
            for leaf in _leaves(each.definition, result)
        ]
        moments = [each.changes_at for each in results if each.changes_at is not None]
        problems = tuple(
            (each.definition.path, result.problem)
            for each, result in zip(self._derivations, results, strict=True)
            if result.problem is not None
        )
        return Behaviour(tuple(sorted(leaves)), min(moments, default=None), problems=problems)

    def _results_at(
        self, person: Person, timelines: Mapping[str, Timeline], moments: Sequence[int], is_short: bool
    ) -> list[list[Derived]]:
        from transforms.behaviour.derivations import derive, derive_at_each

        attributes = self._attributes(person) if self._asked else {}
        entries = {name: each.entries for name, each in timelines.items()}
        whole_from = {name: at for name, each in timelines.items() if (at := self._whole_from(name, each))}
        if is_short:
            return list(derive_at_each(self._derivations, entries, attributes, moments, whole_from))
        return [derive(self._derivations, entries, attributes, now, whole_from) for now in moments]

    def _attributes(self, person: Person) -> dict[str, Any]:
        """The attributes of a profile that some derivation may read, and no key has to open."""
        return tree(
            (each.path, each.value([part.value for part in each.parts]))
            for each in shown(person.state(), self._policies)
            if any(paths.is_within(each.path, one) or paths.is_within(one, each.path) for one in self._asked)
            and not each.is_sealed
            and self._rules.is_open(each.path)
        )


class Deriving:
    """`BehaviourReader.of` by the rules that are given, for persons of one store. One per thread."""

    def __init__(self, store: Timelines) -> None:
        self._store = store
        self._reader: tuple[IndexRules, BehaviourReader] | None = None

    def of(self, persons: Sequence[Person], rules: IndexRules, now_ms: int) -> dict[str, Behaviour]:
        """By id of the person, as of a moment in epoch milliseconds. Raises StoreError."""
        if self._reader is None or self._reader[0] is not rules:
            self._reader = rules, BehaviourReader(self._store, rules.behaviour, rules.policies)
        return self._reader[1].of(persons, now_ms)


def shown_timeline(
    activity: ActivityDocument,
    pages: Iterable[tuple[int, bytes]],
    taken_back: Collection[tuple[str, str]] = (),
    since: int | None = None,
) -> Timeline:
    """`timeline` by an activity's bounds, without fields that it does not name any more. Raises DamagedStateError."""
    days = -(-milliseconds(activity.keep) // DAY_MS)
    fields = activity.fields.keys()
    return timeline(pages, days, activity.most, taken_back, activity.generation, fields, since)


def _leaves(definition: DerivedDocument, derived: Derived) -> list[Shown]:
    """The leaves of a result. The newest of the entries that it rests on is its origin, or its model."""
    model = "" if derived.model is None else MODEL + derived.model
    origins = [
        Origin(Stamp(0, each.time, each.source, each.event_id), definition.ref) for each in derived.entries
    ] or [Origin(Stamp(0, 0, model, ""), definition.ref)]
    others = [Register(origin, Kind.PLAIN, None) for origin in origins[1:]]
    return [
        Shown(
            path,
            (Register(origins[0], Kind.PLAIN, value), *others),
            is_complete=derived.is_complete,
        )
        for path, value in _by_path(definition, derived)
    ]


def _by_path(definition: DerivedDocument, derived: Derived) -> Iterator[tuple[str, Any]]:
    """The values of a result by their whole paths."""
    for below, value in derived.leaves.items():
        yield f"{definition.path}.{below}" if below else definition.path, value


def _taken_back(person: Person) -> frozenset[tuple[str, str]]:
    """Source and id of the events that others take back."""
    return frozenset().union(*(each.state.taken_back() for each in person.members))


_COMPILED: WeakValueDictionary[tuple[str, str], Derivation] = WeakValueDictionary()
"""By definition and digest of its model, as long as a reader has them: a model has many megabytes."""


def _derivation(definition: DerivedDocument, models: Mapping[str, bytes]) -> Derivation:
    """The definition, compiled once for all readers, and once more when its model arrives."""
    digest = "" if definition.model is None else definition.model.digest
    key = definition.model_dump_json(), digest if digest in models else ""
    if (known := _COMPILED.get(key)) is None:
        known = _COMPILED[key] = _compiled(definition, models)
    return known


def _compiled(definition: DerivedDocument, models: Mapping[str, bytes]) -> Derivation:
    # Loaded where something is derived: reading profiles needs no compiler otherwise.
    from transforms.behaviour.derivations import Derivation, Derived, compile_derived

    try:
        return compile_derived(definition, models.__getitem__)
    except SpecError as error:
        # The metadata service refuses it; one of an older idgraph, or whose model cannot be had here, hurts only itself.
        log.warning("derived attribute %s has no values: %s", definition.name, error)
        none = Derived({}, problem=error.message)
        return Derivation(definition, lambda *_: none)
