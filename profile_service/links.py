"""Links of persons: the evidence of each, the result of the rules, and the decisions of people.

Identifiers are in the form in which they are compared: a protected one is known here only by its keyed hash.
"""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple, Protocol

from idgraph.model.fragments import Origin
from idgraph.model.identifiers import Identifier
from idgraph.model.pins import PinRecord
from idgraph.model.stamps import ORDINAL_MAX
from idgraph.model.store import Outbox
from merge.identity.components import Component, Person, pin_of, pins_of, sightings, span_of
from merge.identity.evidence import Class, Link, Pair
from merge.identity.neighbourhood import PersonStore, carriers_of
from merge.identity.persons import Persons
from merge.identity.resolve import Decision, Violation
from profile_service.reader import ProfileReader


class LinkStore(PersonStore, Outbox, Protocol):
    """The store that links are read from, and decisions are written to."""


class SourceEvidence(NamedTuple):
    """The evidence of one source for a pair: its strength by the rules, the oldest and the newest of the
    events."""

    source: str
    strength: float
    oldest: Origin
    newest: Origin


class ShownLink(NamedTuple):
    """A pair of identifiers. `rule` says why it joins nothing, and is empty where it joined. `pin` is the decision in force;
    of a pair that is pinned alone there is no evidence."""

    pair: Pair
    rule: str
    evidence: tuple[SourceEvidence, ...]
    pin: PinRecord | None


class Explanation(NamedTuple):
    """The links that make some identifiers one person. `accepted` links are a tree; `refused` ones lead to
    other persons, or join too little. `person` is who they are. `pins` are all decisions on the identifiers,
    those taken back too, the oldest first."""

    id: str
    identifiers: tuple[Identifier, ...]
    accepted: tuple[ShownLink, ...]
    refused: tuple[ShownLink, ...]
    pins: tuple[PinRecord, ...]
    person: Person

    def tree(self, root: Identifier) -> Iterator[tuple[int, Identifier, ShownLink]]:
        """The accepted links from an identifier on, each with its depth from 1 and the identifier that it leads to."""
        links: dict[Identifier, list[ShownLink]] = defaultdict(list)
        for link in self.accepted:
            for each in link.pair:
                links[each].append(link)
        seen = {root}
        waiting: list[tuple[int, Identifier, ShownLink]] = []

        def reach(depth: int, here: Identifier) -> None:
            for link in reversed(links[here]):
                there = link.pair.high if link.pair.low == here else link.pair.low
                if there not in seen:
                    seen.add(there)
                    waiting.append((depth, there, link))

        reach(1, root)
        while waiting:
            depth, here, link = waiting.pop()
            yield depth, here, link
            reach(depth + 1, here)

    def path(self, one: Identifier, other: Identifier) -> list[tuple[Identifier, ShownLink]]:
        """The accepted links between two identifiers, each with the one that it leads to; none where they are not joined."""
        path: list[tuple[Identifier, ShownLink]] = []
        for depth, there, link in self.tree(one):
            path[depth - 1 :] = [(there, link)]
            if there == other:
                return path
        return []


class StoredIdentifier(NamedTuple):
    """An identifier as it is stored, and the fragments that carry it. A hub joins nothing: some of them, and a decision
    changes only those that carry the other identifier."""

    identifier: Identifier
    carriers: frozenset[str]
    is_hub: bool = False


class PinChange(NamedTuple):
    """Decisions that are not stored yet, and the persons that they change, as they are and as they would be. `joining` are
    links that would join because of it, `gone` and `new` links that would be refused no more, or from then on. `evidence` is
    a digest of all that this follows from."""

    pins: tuple[PinRecord, ...]
    carriers: frozenset[str]
    before: tuple[Person, ...]
    after: tuple[Person, ...]
    joining: tuple[ShownLink, ...]
    gone: tuple[Violation, ...]
    new: tuple[Violation, ...]
    evidence: str


class RefusedGroup(NamedTuple):
    """Links that were refused for one cause: one rule, and one identifier that all of them would join. `owner` is the profile
    that has it now, by the `accepted` links, None where it is nobody's; `rivals` are its identifiers of the types that were refused."""

    identifier: Identifier
    rule: str
    owner: str | None
    rivals: tuple[Identifier, ...]
    accepted: tuple[ShownLink, ...]
    refused: tuple[ShownLink, ...]


class Links:
    """Reads and decides links. Every method blocks, and raises StoreError."""

    def __init__(self, store: LinkStore, reader: ProfileReader) -> None:
        """`reader` says how identifiers are compared."""
        self._store = store
        self._reader = reader
        self._name = reader.names.identifier
        self._persons = Persons(store, reader.rules, name=self._name)

    def stored(self, identifier: Identifier) -> StoredIdentifier | None:
        """An identifier as somebody asks for it; None where no fragment carries it."""
        forms = sorted(self._reader.stored_forms(identifier))
        found, hubs = carriers_of(self._store, self._reader.rules, forms)
        carried = {self._name(form) for form, carriers in found.items() if carriers}
        if not carried:
            return None
        today = self._name(str(self._reader.rules.identifier(*identifier) or identifier))
        chosen = today if today in carried else min(carried)
        carriers = frozenset[str]().union(*found.values())
        return StoredIdentifier(Identifier.parse(chosen), carriers, bool(hubs))

    def explain(self, identifier: Identifier) -> list[Explanation]:
        """The persons of an identifier; where it belongs to nobody, some of those whose events showed it."""
        owners = self._reader.owning(self._reader.stored_forms(identifier))
        wanted = {each.id for each in owners.persons or owners.sharing}
        return [
            self._explained(person, component)
            for component in self._persons.around(wanted).components
            for person in component.persons
            if person.id in wanted
        ]

    def splitting(self, ends: tuple[StoredIdentifier, StoredIdentifier], path: Iterable[Pair]) -> set[Pair]:
        """The links on the path between two identifiers that hold them together: without one of these, which is unlinked
        alone, they would be two persons. Other evidence may join them again without the others."""
        wanted = {each.identifier for each in ends}
        carriers = _joined(ends)
        found = set()
        for pair in path:
            pin = PinRecord(str(pair.low), str(pair.high), ORDINAL_MAX, Decision.NEVER)
            persons = self._persons.around(carriers, supposed=[pin]).persons()
            if not any(wanted.issubset(each.identifiers) for each in persons):
                found.add(pair)
        return found

    def decide(
        self,
        asked: Iterable[tuple[StoredIdentifier, StoredIdentifier, Decision]],
        at_ms: int,
        who: str,
        why: str,
    ) -> PinChange:
        """Find what decisions on pairs of different identifiers would change; changes nothing. Nothing is taken back
        where nothing is decided."""
        carriers: set[str] = set()
        pins: list[PinRecord] = []
        for one, other, decision in asked:
            ends = one, other
            pair = Pair.of(*(each.identifier for each in ends))
            carriers |= _joined(ends)
            known = [each for each in self._pins(map(str, pair)) if pair in self._pairs(each)]
            if decision is Decision.NONE and (not known or known[-1].decision == Decision.NONE):
                continue
            # The newest decision counts, also where an earlier one is of a clock that is ahead.
            moment = max(at_ms, known[-1].at_ms + 1) if known else at_ms
            # Also in the forms of earlier rules.
            for low, high in sorted({pair, *(pin_of(each).pair for each in known)}):
                pins.append(PinRecord(str(low), str(high), moment, decision.value, who, why))
        before = self._persons.around(carriers)
        after = self._persons.around(carriers, supposed=pins)
        persons = before.persons(), after.persons()
        refused = [{each for one in found.components for each in one.violations} for found in (before, after)]
        decided = {Pair(Identifier.parse(each.low), Identifier.parse(each.high)) for each in pins}
        return PinChange(
            tuple(pins),
            frozenset(carriers),
            _without(*persons),
            _without(*reversed(persons)),
            self._joining(before.components, after.components, decided),
            tuple(sorted(refused[0] - refused[1])),
            tuple(sorted(refused[1] - refused[0])),
            self._digest(before.components),
        )

    def refused(self, after: str, limit: int) -> tuple[list[RefusedGroup], str | None]:
        """The groups of refused links that begin with one of up to `limit` fragments behind the fragment
        `after`, in the store's order. With the fragment behind which the next ones begin, None behind the
        last. Pins are no violations here."""
        ids = [each.id for each in self._store.scan(after, limit)]
        groups = [
            group
            for component in self._persons.around(ids).components
            if any(each.rule != Decision.NEVER for each in component.violations)
            for group in self._groups(component, set(ids))
        ]
        return groups, ids[-1] if len(ids) == limit else None

    def _groups(self, component: Component, begin: Set[str]) -> Iterator[RefusedGroup]:
        """The groups whose first fragment is one of these."""
        refused = [each for each in component.violations if each.rule != Decision.NEVER]
        often = Counter(end for each in refused for end in each.pair)
        causes: dict[tuple[Identifier, str], list[Pair]] = defaultdict(list)
        for pair, rule in refused:
            counted = rule.partition(":")[2].split("+")
            cause = max(pair, key=lambda end: (end.type not in counted, often[end], end))
            causes[cause, rule].append(pair)
        first: dict[Pair, str] = {}
        for fragment_id, pair, *_ in sightings(component.members(), self._persons.parse):
            first[pair] = min(fragment_id, first.get(pair, fragment_id))
        evidence = self._evidence(component)

        def shown(pair: Pair, rule: str = "") -> ShownLink:
            return ShownLink(pair, rule, self._sources(evidence.get(pair, {})), None)

        for (cause, rule), pairs in causes.items():
            if min(first[pair] for pair in pairs) in begin:
                owner = next((each for each in component.persons if cause in each.identifiers), None)
                accepted = [shown(pair) for pair in sorted(component.accepted()) if cause in pair]
                refusals = [shown(pair, rule) for pair in pairs]
                types = {end.type for pair in pairs for end in pair if end != cause}
                own = () if owner is None else owner.identifiers
                rivals = tuple(each for each in own if each.type in types and each != cause)
                name = None if owner is None else self.id_of(owner)
                yield RefusedGroup(cause, rule, name, rivals, tuple(accepted), tuple(refusals))

    def keep(self, change: PinChange) -> None:
        """Store the decisions, and put the fragments that they are about into the outbox."""
        self._store.add_pins(change.pins)
        self._store.enqueue(sorted(change.carriers))

    def decided(self, names: Iterable[str]) -> set[Pair]:
        """The pairs with one of these identifiers on which a decision is in force."""
        return set(self._in_force(self._pins(names)))

    def decisions(self, persons: Iterable[Person]) -> list[PinRecord]:
        """All decisions on the identifiers of persons, those taken back too, the oldest first."""
        names: set[str] = set()
        for each in persons:
            names.update(map(str, each.identifiers), *(member.state.names() for member in each.members))
        return self._pins(names)

    def id_of(self, person: Person) -> str:
        """The id of a profile as it is shown."""
        return self._name(person.id)

    def _joining(
        self, before: Iterable[Component], after: Iterable[Component], decided: Set[Pair]
    ) -> tuple[ShownLink, ...]:
        """The links that were not accepted before, without those that somebody decides on."""
        known = {pair for each in before for pair in each.accepted()} | decided
        rules = {each.pair: each.rule for component in before for each in component.violations}
        return tuple(
            ShownLink(pair, rules.get(pair, ""), self._sources(evidence.get(pair, {})), None)
            for component in after
            if (pairs := sorted(set(component.accepted()) - known))
            for evidence in (self._evidence(component),)
            for pair in pairs
        )

    def _digest(self, components: Iterable[Component]) -> str:
        """A digest that is equal exactly where identifiers, evidence, pins and rules are."""
        names: set[str] = set()
        evidence = []
        for component in components:
            names.update(str(each) for person in component.persons for each in person.identifiers)
            evidence += [
                (pair, sorted(spans.items(), key=repr)) for pair, spans in self._evidence(component).items()
            ]
        rules = self._reader.rules.document.model_dump_json()
        seen = sorted(names), sorted(evidence, key=lambda each: each[0]), self._pins(names), rules
        return hashlib.sha256(repr(seen).encode("utf-8", "surrogatepass")).hexdigest()

    def _sources(self, spans: Mapping[Class, tuple[Origin, Origin]]) -> tuple[SourceEvidence, ...]:
        strength = self._reader.rules.strength
        found = [SourceEvidence(kind.source, strength(kind), *span) for kind, span in spans.items()]
        return tuple(sorted(found))

    def _pins(self, names: Iterable[str]) -> list[PinRecord]:
        found = set()
        for each in self._store.pins_of(sorted(set(names))):
            pair = pin_of(each, self._name).pair
            found.add(each._replace(low=str(pair.low), high=str(pair.high)))
        return sorted(found, key=_age)

    def _pairs(self, record: PinRecord) -> set[Pair]:
        return {each.pair for each in pins_of(record, self._reader.rules)}

    def _in_force(self, pins: Iterable[PinRecord]) -> dict[Pair, PinRecord]:
        newest = {pair: each for each in sorted(pins, key=_age) for pair in self._pairs(each)}
        return {pair: each for pair, each in newest.items() if each.decision != Decision.NONE}

    def _explained(self, person: Person, component: Component) -> Explanation:
        own = set(person.identifiers)
        pins = self.decisions([person])
        in_force = self._in_force(pins)
        evidence = self._evidence(component)

        def shown(pair: Pair, rule: str = "") -> ShownLink:
            return ShownLink(pair, rule, self._sources(evidence.get(pair, {})), in_force.get(pair))

        refused = {each.pair: each.rule for each in component.violations}
        for pair, spans in evidence.items():
            if not own.issuperset(pair):
                refused.setdefault(pair, self._untried(pair, spans))
        return Explanation(
            self._name(person.id),
            person.identifiers,
            tuple(shown(pair) for pair in sorted(component.accepted()) if own.issuperset(pair)),
            tuple(shown(pair, refused[pair]) for pair in sorted(refused) if not own.isdisjoint(pair)),
            tuple(pins),
            person,
        )

    def _untried(self, pair: Pair, spans: Mapping[Class, tuple[Origin, Origin]]) -> str:
        """The reason why a link between two persons was not even tried."""
        classes = {kind: span_of([span]) for kind, span in spans.items()}
        return "contradicts" if self._reader.rules.order(Link(pair, classes)) is None else "least_strength"

    def _evidence(self, component: Component) -> dict[Pair, dict[Class, tuple[Origin, Origin]]]:
        found: dict[Pair, dict[Class, tuple[Origin, Origin]]] = defaultdict(dict)
        origin = self._reader.names.origin
        for _, pair, kind, oldest, newest in sightings(component.members(), self._persons.parse):
            first, last = found[pair].get(kind, (origin(oldest), origin(newest)))
            found[pair][kind] = min(first, origin(oldest)), max(last, origin(newest))
        return found


def _joined(ends: tuple[StoredIdentifier, StoredIdentifier]) -> set[str]:
    """The fragments that a decision on two identifiers may change."""
    return {name for each in ends if not each.is_hub for name in each.carriers}


def _age(pin: PinRecord) -> tuple[int, str, str, str]:
    return pin.at_ms, pin.decision, pin.who, pin.why


def _without(persons: Sequence[Person], others: Sequence[Person]) -> tuple[Person, ...]:
    """The persons that are not equal to one of the others."""
    same = {_key(each) for each in others}
    return tuple(each for each in persons if _key(each) not in same)


def _key(person: Person) -> tuple[object, ...]:
    return person.identifiers, tuple(each.stored.id for each in person.members)
