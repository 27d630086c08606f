"""Evidence that two identifiers name one person.

The evidence of a pair is a join-semilattice: a map from (source, event id) to a sighting or its retraction, joined entry
by entry, a retraction before a sighting. So it is the same in whatever order and however often events arrive.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import combinations
from typing import NamedTuple

from idgraph.model.identifiers import Identifier
from idgraph.model.stamps import SpecRef


class Pair(NamedTuple):
    """Two identifiers, the smaller one first."""

    low: Identifier
    high: Identifier

    @classmethod
    def of(cls, one: Identifier, other: Identifier) -> Pair:
        """The pair of two different identifiers, in whichever order they are given."""
        return cls(one, other) if one < other else cls(other, one)


class Moment(NamedTuple):
    """When an event happened, in a total order: `ordinal` in the source's own unit, for times epoch milliseconds."""

    ordinal: int
    source: str
    event_id: str


class Class(NamedTuple):
    """What the rules may tell apart among the sightings of a pair: sightings of one class count alike.

    `strength` is the event's own, None where its source decides; `repeated` are the namespaces of which the event
    carried several values.
    """

    source: str
    strength: float | None = None
    repeated: tuple[str, ...] = ()


class Span(NamedTuple):
    """The oldest and the newest of some sightings, and how many there are."""

    oldest: Moment
    newest: Moment
    sightings: int = 1

    def join(self, other: Span) -> Span:
        """Both, of disjoint sets of sightings."""
        return Span(
            min(self.oldest, other.oldest), max(self.newest, other.newest), self.sightings + other.sightings
        )


class Link(NamedTuple):
    """A pair, and what its evidence amounts to: the span of its sightings by class."""

    pair: Pair
    classes: Mapping[Class, Span]


class Sighting(NamedTuple):
    """One event's evidence of a pair."""

    moment: Moment
    kind: Class
    spec: SpecRef | None = None


class SeenEvent(NamedTuple):
    """What one event shows: normalised identifiers without blocked ones, and which of them are evidence for each other.

    `pairs` None: all of them, pair by pair.
    """

    moment: Moment
    identifiers: tuple[Identifier, ...]
    strength: float | None = None
    pairs: tuple[Pair, ...] | None = None
    spec: SpecRef | None = None

    def sightings(self) -> dict[Pair, Sighting]:
        """Its evidence by pair."""
        distinct = sorted(set(self.identifiers))
        names = [each.type for each in distinct]
        repeated = tuple(sorted({name for name in names if names.count(name) > 1}))
        sighting = Sighting(self.moment, Class(self.moment.source, self.strength, repeated), self.spec)
        pairs = (Pair(*each) for each in combinations(distinct, 2)) if self.pairs is None else self.pairs
        return dict.fromkeys(pairs, sighting)


def linked(identifiers: Iterable[Identifier], types: Iterable[tuple[str, str]]) -> tuple[Pair, ...]:
    """The pairs of an event's identifiers whose types a mapping spec links."""
    known = {frozenset(pair) for pair in types}
    pairs = combinations(sorted(set(identifiers)), 2)
    return tuple(Pair(*pair) for pair in pairs if frozenset(each.type for each in pair) in known)


def links(sightings: Iterable[tuple[Pair, Sighting]]) -> list[Link]:
    """Links of sightings, each of which is given once."""
    found: dict[Pair, dict[Class, Span]] = {}
    for pair, sighting in sightings:
        classes = found.setdefault(pair, {})
        span = Span(sighting.moment, sighting.moment)
        known = classes.get(sighting.kind)
        classes[sighting.kind] = span if known is None else known.join(span)
    return [Link(pair, classes) for pair, classes in found.items()]
