"""Components: fragments that evidence joins, and the persons that the rules make of them. Nothing is read here."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import product
from typing import NamedTuple

from idgraph.model.fragments import Origin
from idgraph.model.identifiers import Identifier
from idgraph.model.pins import PinRecord
from idgraph.model.stamps import ORDINAL_MAX
from idgraph.model.store import StoredFragment, document_version
from merge.fragments import FragmentState, joined_natively
from merge.identity.evidence import Class, Link, Moment, Pair, Span
from merge.identity.resolve import Decision, Pin, Resolution, Violation, resolve
from merge.identity.rules import Rules

_JOINED_AT_ONCE = 8
"""So many states at least: native code takes few identifiers."""
_NEVER = (ORDINAL_MAX, "", "")
Partition = tuple[tuple[Identifier, ...], ...]


class Member(NamedTuple):
    """A fragment of a person."""

    stored: StoredFragment
    state: FragmentState


class Person(NamedTuple):
    """A profile: its fragments, the oldest first, whose id is the profile's; its identifiers, sorted (none where they were
    not asked for)."""

    id: str
    members: tuple[Member, ...]
    identifiers: tuple[Identifier, ...]

    @property
    def version(self) -> int:
        """The version of its document, once its fragments are assigned to it."""
        stored = self.members[0].stored
        return document_version(stored.generation, [each.stored.version for each in self.members])

    def bytes(self) -> int:
        """Bytes of its fragments in the store."""
        return sum(len(each.stored.state) for each in self.members)

    def carriers(self, names: Collection[str]) -> list[Member]:
        """Its fragments of these ids, then those whose events showed one of these identifiers, the oldest first."""
        found = [each for each in self.members if not {each.stored.id, *each.state.names()}.isdisjoint(names)]
        return sorted(found, key=lambda each: each.stored.id not in names)

    def state(self) -> FragmentState:
        """The join of its fragments."""
        if len(self.members) == 1:
            return self.members[0].state
        return joined([each.state for each in self.members])


class Component(NamedTuple):
    """Fragments that evidence joins, the persons that the rules make of them, and the links that they refused. `accepted`
    returns the links that joined."""

    persons: tuple[Person, ...]
    violations: tuple[Violation, ...] = ()
    accepted: Callable[[], tuple[Pair, ...]] = tuple

    def members(self) -> list[Member]:
        """Members of all persons."""
        return [each for person in self.persons for each in person.members]

    def is_joined(self) -> bool:
        """Whether it has more than one fragment."""
        return len(self.persons) > 1 or len(self.persons[0].members) > 1


def pin_of(record: PinRecord, name: Callable[[str], str] = str) -> Pin:
    """A stored decision as it counts. `name` as of `Persons`."""
    low, high, at_ms, decision, who, why = record
    pair = Pair.of(Identifier.parse(name(low)), Identifier.parse(name(high)))
    return Pin(pair, Decision(decision), at_ms, who, why)


def pins_of(record: PinRecord, rules: Rules, name: Callable[[str], str] = str) -> list[Pin]:
    """The same for each form of its identifiers: as they were when it was made, and as events bring them today."""
    pin = pin_of(record, name)
    pairs = product(*map(rules.forms, pin.pair))
    return [pin._replace(pair=Pair.of(*each)) for each in sorted(pairs) if each[0] != each[1]]


def joined(states: Sequence[FragmentState]) -> FragmentState:
    """The join of the normalised states of several fragments. A snapshot event covers its own fragment alone."""
    if (quickly := joined_natively(states)) is not None:
        return quickly
    if len(states) > 2 * _JOINED_AT_ONCE:
        parts = len(states) // _JOINED_AT_ONCE
        states = [joined(states[each::parts]) for each in range(parts)]
    whole = FragmentState()
    for each in states:
        part = FragmentState.decode(each.encode())
        part.markers.clear()
        whole.join(part)
    whole.normalise()
    return whole


def undisputed(members: Sequence[Member], rules: Rules, decided: Collection[str]) -> Person | None:
    """The person of all these fragments, if they are one in whatever order links are tried, without her identifiers. None
    where only `resolved` says so. `decided` are the hubs and the identifiers with a pin. Identifiers are compared as they
    are stored."""
    parts: list[set[str]] = []
    aged = []
    for each in members:
        own = each.stored.id
        names, since = each.state.named(own) or ((), None)
        if since is None or own not in names:
            return None
        aged.append((since, own, each))
        part = set(names)
        for other in parts[:]:
            if not other.isdisjoint(part):
                part |= other
                parts.remove(other)
        parts.append(part)
    if len(parts) > 1 or not rules.allows(parts[0]) or not parts[0].isdisjoint(decided):
        return None
    aged.sort()
    return Person(aged[0][1], tuple([each for *_, each in aged]), ())


def resolved(
    members: Sequence[Member],
    rules: Rules,
    pins: Mapping[Identifier, Sequence[Pin]],
    hubs: Collection[Identifier],
    parse: Callable[[str], Identifier] = Identifier.parse,
) -> Component:
    """The persons of all fragments of a component. `pins` are by the lower identifier. `hubs` are identifiers that more
    fragments carry than their hub limit allows. Those of other components do no harm. `parse` returns the form in which
    a stored identifier is compared."""
    seen: set[Identifier] = set()
    joining: list[tuple[Identifier, Iterable[Identifier]]] = []
    ages: dict[str, tuple[int, str, str]] = {}
    by_identifier: dict[Identifier, list[Member]] = defaultdict(list)
    for each in members:
        own = parse(each.stored.id)
        by_identifier[own].append(each)
        texts, since = (rules.joins_all and each.state.named(each.stored.id)) or ((), None)
        names = {parse(text) for text in texts}
        if since is not None and len(names) == len(texts):
            joining.append((own, names))
        else:
            origins = shown_by(each, parse)
            names = set(origins)
            since = min((origin.stamp[1:] for origin in origins.values()), default=_NEVER)
            links = [pair for _, pair, kind, *_ in sightings([each], parse) if rules.joins(pair, kind)]
            joining += [(low, (high,)) for low, high in links]
        seen |= names
        ages[each.stored.id] = since

    def ordered() -> Resolution:
        first: dict[Identifier, int] = {}
        known: dict[Pair, dict[Class, list[tuple[Origin, Origin]]]] = defaultdict(dict)
        for each in members:
            for identifier, origin in shown_by(each, parse).items():
                ordinal = origin.stamp.ordinal
                first[identifier] = min(ordinal, first.get(identifier, ordinal))
        for _, pair, kind, oldest, newest in sightings(members, parse):
            known[pair].setdefault(kind, []).append((oldest, newest))
        links = [
            Link(pair, {kind: span_of(spans) for kind, spans in classes.items()})
            for pair, classes in known.items()
        ]
        pinned = [pin for each in first for pin in pins.get(each, ())]
        return resolve(links, first, pinned, rules, [each for each in first if each in hubs])

    is_decided = bool(pins or hubs) and any(each in pins or each in hubs for each in seen)
    pairs = (pair for _, pair, *_ in sightings(members, parse))
    partition = None if is_decided else uncontested(seen, joining, rules, pairs)
    violations: tuple[Violation, ...] = ()
    if partition is None:
        partition, _, violations = ordered()
    persons = []
    # Identifiers that no event shows any more join nothing.
    alone = [(each,) for each in sorted(by_identifier.keys() - seen)]
    for part in (*partition, *alone):
        of_part = [member for identifier in part for member in by_identifier.get(identifier, ())]
        if of_part:
            of_part.sort(key=lambda member: (ages[member.stored.id], member.stored.id))
            persons.append(Person(of_part[0].stored.id, tuple(of_part), part))
    return Component(tuple(persons), violations, lambda: ordered().accepted)


def uncontested(
    seen: Collection[Identifier],
    joining: Iterable[tuple[Identifier, Iterable[Identifier]]],
    rules: Rules,
    pairs: Iterable[Pair],
) -> Partition | None:
    """The partition by links that are strong enough, from one identifier to each of some others; None where rules may refuse
    some. If all identifiers together keep every limit, each part of them does too: no link is refused in whatever order they
    are tried, and neither their order nor their classes need be known. `pairs` are those of all links, read where somebody may have too many neighbours. O(n) but for sorting each part."""
    if not rules.keep_limits(each.type for each in seen):
        return None
    size = rules.document.size_limit
    if size is not None and len(seen) > size and rules.counted(seen) > size:
        return None
    if len(seen) > rules.least_hub_limit and rules.hubs(set(pairs)):
        return None
    part_of = {each: [each] for each in seen}
    for low, others in joining:
        one = part_of.get(low)
        for high in others:
            other = part_of.get(high)
            if one is None or other is None or other is one:
                continue
            if len(one) < len(other):
                one, other = other, one
            one += other
            for each in other:
                part_of[each] = one
    parts = {id(part): part for part in part_of.values()}.values()
    return tuple(sorted([tuple(sorted(part)) for part in parts]))


def span_of(spans: Sequence[tuple[Origin, Origin]]) -> Span:
    """From the oldest of some events to the newest, by stamp, as within a fragment."""
    ends = min(oldest for oldest, _ in spans), max(newest for _, newest in spans)
    return Span(*(Moment(*each.stamp[1:]) for each in ends))


def shown_by(member: Member, parse: Callable[[str], Identifier]) -> dict[Identifier, Origin]:
    """The identifiers that a fragment's events showed, with the earliest event of each."""
    found: dict[Identifier, Origin] = {}
    for text, origin in member.state.shown().items():
        identifier = parse(text)
        if identifier not in found or origin < found[identifier]:
            found[identifier] = origin
    return found


def sightings(
    members: Iterable[Member], parse: Callable[[str], Identifier]
) -> Iterator[tuple[str, Pair, Class, Origin, Origin]]:
    """The pairs that events of each fragment showed together, with the oldest and the newest of these events. `parse` returns
    the form in which a stored identifier is compared."""
    for each in members:
        own = parse(each.stored.id)
        for shown, oldest, newest in each.state.shown_together():
            kind, pairs = shown.pairs(own, [parse(text) for text in shown.others])
            for pair in pairs:
                yield each.stored.id, pair, kind, oldest, newest
