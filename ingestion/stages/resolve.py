"""All persons from scratch: which identifiers a store's fragments carry, and the persons of joined fragments.

Between the two steps somebody joins the fragments that share an identifier: Spark, in `ingestion.spark.rebuild`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple

from idgraph.model import canonical
from idgraph.model.batch_size import BatchSize
from idgraph.model.errors import DamagedStateError
from idgraph.model.identifiers import Identifier
from idgraph.model.store import StoredFragment, read_pages
from merge.fragments import FragmentState
from merge.identity.components import Member, Person, pins_of, resolved
from merge.identity.evidence import Pair
from merge.identity.neighbourhood import PersonStore, too_many
from merge.identity.resolve import Decision, Pin
from merge.identity.rules import Rules

AT_ONCE = 2000
"""Fragments that are read at once, unless one component has more."""


BEGINNING = b'{"fragments":'
"""The beginning of each profile's line: its keys are sorted."""


class CarriedName(NamedTuple):
    """A fragment carries an identifier, which joins nothing as soon as `too_many` fragments do, of those that count (1; 0 for
    one that does not)."""

    fragment_id: str
    identifier: str
    too_many: int
    counts: int


class JoinedFragment(NamedTuple):
    """A fragment of a component, which has a number; and which of its identifiers too many fragments carry."""

    component: int
    fragment_id: str
    hubs: Sequence[str]


class ResolvedProfile(NamedTuple):
    """A person that was resolved, with the ids of her fragments as they are stored. `misplaced` are those that the projection
    has recorded for another profile; `version` is that of her document once there are none. `line` is what is shown of
    her; empty for a fragment that could not be read."""

    id: str
    version: int
    fragments: list[str]
    misplaced: list[str]
    line: bytes


def carried(store: PersonStore, ids: Iterable[str], rules: Rules) -> Iterator[CarriedName]:
    """All identifiers that some fragments carry. Raises StoreError."""
    # By namespace.
    counts: dict[str, int] = {}
    limit_of = cache(partial(too_many, rules))
    for _, found in read_pages(store, ids, BatchSize(AT_ONCE)):
        for each in found.values():
            member = _member(each)
            # Its own id, too, where all its events are taken back.
            for name in {each.id, *member.state.names()} if member else ():
                kind, own = name.partition(":")[0], each.id.partition(":")[0]
                if own not in counts:
                    counts[own] = rules.counted([Identifier.parse(each.id)])
                yield CarriedName(each.id, name, limit_of(kind), counts[own])


def pinned_together(store: PersonStore, rules: Rules) -> set[Pair]:
    """Pairs of identifiers that a person joined, also where that was taken back. Raises StoreError."""
    joining = (each for each in store.pins() if each.decision == Decision.ALWAYS)
    return {pin.pair for each in joining for pin in pins_of(each, rules)}


def profile_of(person: Person, show: Callable[[str], str]) -> ResolvedProfile:
    """The report on a person. `show` returns the form in which a stored identifier may be shown."""
    stored = [each.stored for each in person.members]
    content = {
        "id": show(person.id),
        "fragments": sorted(show(each.id) for each in stored),
        "identifiers": sorted({show(str(each)) for each in person.identifiers}),
    }
    misplaced = [each.id for each in stored if each.projected_into != person.id]
    line = canonical.encode(content) + b"\n"
    return ResolvedProfile(person.id, person.version, [each.id for each in stored], misplaced, line)


def unreadable(fragment_id: str) -> ResolvedProfile:
    """The report on a fragment that could not be read."""
    return ResolvedProfile(fragment_id, 0, [fragment_id], [], b"")


def resolved_profiles(
    store: PersonStore, rows: Iterable[JoinedFragment], rules: Rules, show: Callable[[str], str]
) -> Iterator[ResolvedProfile]:
    """The persons of whole components, whose fragments come together. Raises StoreError."""
    pins: dict[Identifier, list[Pin]] = defaultdict(list)
    for pin in (pin for record in store.pins() for pin in pins_of(record, rules)):
        pins[pin.pair.low].append(pin)
    size = BatchSize(AT_ONCE)
    for components in _together(rows, size):
        ids = [each.fragment_id for component in components for each in component]
        stored = store.read(ids)
        size.weighed(len(ids), sum(len(each.state) for each in stored.values()))
        parse = cache(Identifier.parse)
        for component in components:
            members = {name: _member(stored[name]) for _, name, _ in component if name in stored}
            yield from (unreadable(name) for name, member in members.items() if member is None)
            hubs = {Identifier.parse(name) for each in component for name in each.hubs}
            found = resolved([each for each in members.values() if each], rules, pins, hubs, parse)
            yield from (profile_of(person, show) for person in found.persons)


def _together(rows: Iterable[JoinedFragment], size: BatchSize) -> Iterator[list[list[JoinedFragment]]]:
    """Components, as many as may be read at once."""
    waiting: list[list[JoinedFragment]] = []
    fragments = 0
    for _, component in groupby(rows, key=itemgetter(0)):
        waiting.append(list(component))
        fragments += len(waiting[-1])
        if fragments >= size.present:
            yield waiting
            waiting, fragments = [], 0
    if waiting:
        yield waiting


def _member(stored: StoredFragment) -> Member | None:
    """None for one whose state is damaged."""
    try:
        state = FragmentState.checked(stored.state)
        state.names()
        return Member(stored, state)
    except DamagedStateError:
        return None
