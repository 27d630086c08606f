"""Persons of a store: stored fragments, grouped by the rules.

A component is read around some fragments: all that share an identifier with them, with those, and so on. An identifier
that more fragments carry than its hub limit allows joins nothing, so nothing is read behind it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import chain, islice, product
from types import MappingProxyType
from typing import NamedTuple, Protocol

from idgraph.model.batch_size import BatchSize
from idgraph.model.errors import DamagedStateError
from idgraph.model.fragments import Origin
from idgraph.model.identifiers import Identifier
from idgraph.model.pins import PinRecord, Pins
from idgraph.model.stamps import ORDINAL_MAX
from idgraph.model.store import FragmentStore, StoredFragment, document_version, read_pages
from merge.fragments import FragmentState, joined_natively
from merge.identity.evidence import Class, Link, Moment, Pair, Span
from merge.identity.resolve import Decision, Pin, Resolution, Violation, resolve
from merge.identity.rules import Rules
from merge.identity.uncontested import uncontested

UNLIMITED = 1 << 31
NOTHING_KNOWN: Mapping[str, list[str]] = MappingProxyType({})
MOST_SHARING = 100
"""Persons that are named of those that share an identifier."""
_READ_AT_ONCE = 10_000
_JOINED_AT_ONCE = 8
"""So many states at least: native code takes few identifiers."""
_MOST_AHEAD = 200_000
"""Fragments whose person is remembered until her page comes."""


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
        return document_version(
            self.members[0].stored.generation, (each.stored.version for each in self.members)
        )

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


class Found(NamedTuple):
    """Components; by id why fragments could not be read, without any value; and the identifiers, as they are stored, that
    more fragments carry than their hub limit allows. `not_hubs` are those that a fragment carries no more, as an event was
    taken back, and that are no hubs."""

    components: list[Component]
    unreadable: dict[str, str]
    hubs: set[str]
    not_hubs: set[str]

    def persons(self) -> list[Person]:
        """All persons, sorted by id."""
        return sorted(person for each in self.components for person in each.persons)


class Named(NamedTuple):
    """Persons sorted by id, and by id why fragments could not be read, without any value."""

    persons: list[Person]
    unreadable: dict[str, str]


class Carriers(NamedTuple):
    """By identifier the fragments that carry it; `hubs` are identifiers that more carry than their hub limit allows: of
    these, some fragments."""

    carriers: dict[str, list[str]]
    hubs: set[str]


class Owners(NamedTuple):
    """The persons that an identifier belongs to, sorted by id: one, or several where it is stored in several forms.
    If it belongs to nobody, `sharing` are those whose events showed it, at most `MOST_SHARING`."""

    persons: list[Person]
    sharing: list[Person]
    unreadable: dict[str, str]


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


class PersonStore(FragmentStore, Pins, Protocol):
    """The store that persons are read from."""


class Persons:
    """Reads persons from a store. One per thread."""

    def __init__(self, store: PersonStore, rules: Rules, name: Callable[[str], str] = str) -> None:
        """`name` returns the form in which a stored identifier is compared."""
        self._store = store
        self._rules = rules
        self._name = name
        self._size = BatchSize(_READ_AT_ONCE)
        self._ahead: dict[str, _Outline] = {}

    def around(
        self,
        ids: Iterable[str],
        resolves_all: bool = True,
        supposed: Sequence[PinRecord] = (),
        known: Mapping[str, list[str]] = NOTHING_KNOWN,
    ) -> Found:
        """The persons of these fragments, with all others that the rules compared them with. Fragments that are gone are
        left out. Raises StoreError.

        Without `resolves_all` the identifiers of a fragment that shares none are not resolved. `supposed` decisions count as
        if they were stored. `known` are identifiers with all fragments that carry them: these are not asked for again.
        """
        read = _Neighbourhood(self._store, self._rules, self._name, self._size, supposed, known)
        with self._store.consistent_read():
            read.extend(ids)
        components = [
            Component((Person(members[0].stored.id, (members[0],), ()),))
            if len(members) == 1 and not resolves_all
            else resolved(members, self._rules, read.pins, read.hubs, self._name)
            for members in read.components()
        ]
        return Found(components, read.unreadable, read.stored_hubs, read.taken_back - read.stored_hubs)

    def named(self, ids: Iterable[str], resolves_all: bool = True) -> Named:
        """The persons whose id is one of these: over pages of all fragments, each person once. Raises StoreError.

        Other persons of their components are remembered: when their page comes, their own fragments are read alone, and
        their component only where one of these has changed.
        """
        wanted = set(ids)
        persons, changed = self._remembered(wanted)
        found = self.around(changed, resolves_all)
        persons += [each for each in found.persons() if each.id in changed]
        self._remember(found, wanted)
        return Named(sorted(persons), {name: why for name, why in found.unreadable.items() if name in wanted})

    def _remembered(self, wanted: Collection[str]) -> tuple[list[Person], set[str]]:
        """The persons of these ids that are as they were; and the ids of which nothing is known, or that have changed."""
        known = {name: self._ahead.pop(name) for name in wanted if name in self._ahead}
        outlines = [each for name, each in known.items() if name == each.id]
        stored = self._store.read([part.id for each in outlines for part in each.fragments])
        persons, changed = [], set(wanted) - known.keys()
        for each in outlines:
            there = [stored[part.id] for part in each.fragments if part.id in stored]
            try:
                if each.fragments == tuple(one._replace(state=b"") for one in there):
                    members = tuple(Member(one, FragmentState.checked(one.state)) for one in there)
                    persons.append(Person(each.id, members, each.identifiers))
                    continue
            except DamagedStateError:
                pass
            changed.add(each.id)
        return persons, changed

    def _remember(self, found: Found, passed: Collection[str]) -> None:
        """The persons that come next first, as far as there is room."""
        last = max(passed, default="")
        persons = [person for each in found.components if each.is_joined() for person in each.persons]
        if len(self._ahead) + sum(len(each.members) for each in persons) > _MOST_AHEAD:
            self._ahead.clear()
        for person in sorted(persons, key=lambda each: (each.id <= last, each.id)):
            if len(self._ahead) > _MOST_AHEAD:
                break
            fragments = tuple(each.stored._replace(state=b"") for each in person.members)
            outline = _Outline(person.id, fragments, person.identifiers)
            self._ahead.update((each.id, outline) for each in fragments if each.id not in passed)

    def owning(self, names: Collection[str]) -> Owners:
        """The owners of an identifier, given in all forms in which it may be stored, or of a fragment of this id.
        Raises StoreError."""
        return self.owning_each([names])[0]

    def owning_each(self, asked: Sequence[Collection[str]]) -> list[Owners]:
        """`owning` of each, read together."""
        names = sorted(set().union(*asked))
        with self._store.consistent_read():
            carriers = self._store.find_all(names, MOST_SHARING)
            known = {each: some for each in names if len(some := carriers.get(each, [])) < MOST_SHARING}
            found = self.around(dict.fromkeys([*names, *chain(*carriers.values())]), known=known)
            if found.unreadable and len(asked) > 1:
                # Each with what is unreadable of its own.
                return [owners for each in asked for owners in self.owning_each([each])]
        having: dict[str, dict[str, Person]] = defaultdict(dict)
        of_fragment: dict[str, Person] = {}
        for person in (person for each in found.components for person in each.persons):
            fragments = [each.stored.id for each in person.members]
            of_fragment.update(dict.fromkeys(fragments, person))
            for name in (*fragments, *map(str, person.identifiers)):
                having[name][person.id] = person
        owners = []
        for forms in asked:
            persons = {name: person for form in forms for name, person in having[form].items()}
            carrying = [] if persons else [each for form in forms for each in carriers.get(form, ())]
            sharing = {of_fragment[each].id: of_fragment[each] for each in carrying if each in of_fragment}
            owners.append(Owners(sorted(persons.values()), sorted(sharing.values()), found.unreadable))
        return owners

    def scan(self, resolves_all: bool = True, page: int = 1000) -> Iterator[Named]:
        """All persons in the order of their ids, a page in memory at a time. Raises StoreError."""
        remaining, size = iter(self._store.ids()), BatchSize(page)
        self._ahead.clear()
        while some := list(islice(remaining, size.present)):
            found = self.named(some, resolves_all)
            size.weighed(len(some), sum(map(Person.bytes, found.persons)))
            yield found

    def parse(self, text: str) -> Identifier:
        """A stored identifier, in the form in which it is compared."""
        return Identifier.parse(self._name(text))

    def fragments(self, page: int = 1000) -> Iterator[Named]:
        """All fragments in the order of their ids, each as if it were a person of its own. Raises StoreError."""
        for ids, stored in read_pages(self._store, self._store.ids(), BatchSize(page)):
            found = Named([], {})
            for each in (stored[name] for name in ids if name in stored):
                try:
                    member = Member(each, FragmentState.decode(each.state))
                except DamagedStateError:
                    found.unreadable[each.id] = "its stored state is damaged"
                    continue
                own, shown = self.parse(each.id), _shown(member, self.parse)
                identifiers = tuple(sorted({own, *shown}))
                found.persons.append(Person(each.id, (member,), identifiers))
            yield found


def resolved(
    members: Sequence[Member],
    rules: Rules,
    pins: Mapping[Identifier, Sequence[Pin]],
    hubs: Collection[Identifier],
    name: Callable[[str], str] = str,
) -> Component:
    """The persons of all fragments of a component. `pins` are by the lower identifier. `hubs` are identifiers that more
    fragments carry than their hub limit allows. Those of other components do no harm. `name` as of `Persons`."""
    parse = cache(lambda text: Identifier.parse(name(text)))
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
            origins = _shown(each, parse)
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
            for identifier, origin in _shown(each, parse).items():
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


def span_of(spans: Sequence[tuple[Origin, Origin]]) -> Span:
    """From the oldest of some events to the newest, by stamp, as within a fragment."""
    ends = min(oldest for oldest, _ in spans), max(newest for _, newest in spans)
    return Span(*(Moment(*each.stamp[1:]) for each in ends))


def _shown(member: Member, parse: Callable[[str], Identifier]) -> dict[Identifier, Origin]:
    """The identifiers that a fragment's events showed, with the earliest event of each."""
    found: dict[Identifier, Origin] = {}
    for text, origin in member.state.shown().items():
        identifier = parse(text)
        if identifier not in found or origin < found[identifier]:
            found[identifier] = origin
    return found


def too_many(rules: Rules, namespace: str) -> int:
    """As many fragments carry an identifier of a namespace that joins nothing."""
    limit = rules.hub_limit(namespace)
    return UNLIMITED if limit is None else limit + 2


def carriers_of(
    store: FragmentStore,
    rules: Rules,
    identifiers: Iterable[str],
    known: Mapping[str, list[str]] = NOTHING_KNOWN,
) -> Carriers:
    """The fragments that carry some identifiers, as they are stored. Raises StoreError. `known` as of `Persons.around`."""
    by_limit: dict[int, list[str]] = defaultdict(list)
    limit_of = cache(partial(too_many, rules))
    for text in identifiers:
        by_limit[limit_of(text.partition(":")[0])].append(text)
    found = Carriers({}, set())
    for limit, some in by_limit.items():
        found.carriers.update({each: known[each] for each in some if each in known})
        if asked := [each for each in some if each not in known]:
            found.carriers.update(store.find_all(asked, limit))
        for text in [each for each in some if len(found.carriers.get(each, ())) >= limit]:
            if _counted(found.carriers[text], rules) < limit:
                found.carriers.update(store.find_all([text], UNLIMITED))
            if _counted(found.carriers[text], rules) >= limit:
                found.hubs.add(text)
    return found


def _counted(fragment_ids: Sequence[str], rules: Rules) -> int:
    return rules.counted(list(map(Identifier.parse, fragment_ids)))


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


_NEVER = (ORDINAL_MAX, "", "")


class _Outline(NamedTuple):
    """A person without the states of her fragments."""

    id: str
    fragments: tuple[StoredFragment, ...]
    identifiers: tuple[Identifier, ...]


class _Neighbourhood:
    """Fragments and all that share identifiers with them, which are no hubs."""

    def __init__(
        self,
        store: PersonStore,
        rules: Rules,
        name: Callable[[str], str],
        size: BatchSize,
        supposed: Sequence[PinRecord],
        known: Mapping[str, list[str]],
    ) -> None:
        self._store = store
        self._supposed = supposed
        self._known_carriers = known
        self._rules = rules
        self._name = name
        self._size = size
        self._members: dict[str, Member] = {}
        self._above: dict[str, str] = {}
        self._asked: set[str] = set()
        self._pinned_together: list[tuple[str, str]] = []
        self._first_carrier: dict[str, str] = {}
        self.hubs: set[Identifier] = set()
        self.stored_hubs: set[str] = set()
        self.taken_back: set[str] = set()
        self.pins: dict[Identifier, list[Pin]] = defaultdict(list)
        self.unreadable: dict[str, str] = {}

    def extend(self, ids: Iterable[str]) -> None:
        """Read these fragments and all around them."""
        known = set(waiting := list(dict.fromkeys(ids)))
        while waiting:
            some, waiting = waiting[: self._size.present], waiting[self._size.present :]
            carried = self._read(some)
            # The profile that a fragment leaves changes too.
            left = {self._members[each].stored.profile_id for each in some if each in self._members}
            waiting += sorted(left - known - {""})
            known |= left
            carried += self._pinned(carried)
            for identifier, carriers in self._carriers(carried).items():
                for carrier in carriers:
                    if carrier not in known:
                        known.add(carrier)
                        waiting.append(carrier)
                    if carrier not in self._members:
                        self._above.setdefault(carrier, carrier)
                    self._join(self._first_carrier.setdefault(self._name(identifier), carrier), carrier)

    def _read(self, ids: Sequence[str]) -> list[str]:
        """Read fragments; the identifiers that were not known before."""
        found: set[str] = set()
        stored = self._store.read(ids)
        self._size.weighed(len(ids), sum(len(each.state) for each in stored.values()))
        for each in stored.values():
            try:
                state = FragmentState.checked(each.state)
                names, taken_back = state.names_and_others(each.id)
            except DamagedStateError:
                self.unreadable[each.id] = "its stored state is damaged"
                continue
            self._members[each.id] = Member(each, state)
            self._above.setdefault(each.id, each.id)
            self.taken_back |= taken_back
            names |= taken_back
            found |= {each.id, *names}
            found.update(map(self._name, names))
        found -= self._asked
        self._asked |= found
        return sorted(found)

    def _pinned(self, identifiers: Sequence[str]) -> list[str]:
        """Note the decisions on these identifiers; those that are pinned to them and were not known before."""
        found: set[str] = set()
        asked = set(identifiers)
        known = self._store.pins_of(identifiers) if identifiers else []
        known += [each for each in self._supposed if not asked.isdisjoint(each[:2])]
        for each in known:
            for pin in pins_of(each, self._rules, self._name):
                self.pins[pin.pair.low].append(pin)
                if pin.decision is Decision.ALWAYS:
                    one, other = map(str, pin.pair)
                    self._pinned_together.append((one, other))
                    found.update((each.low, each.high, one, other))
        found -= self._asked
        self._asked |= found
        return [*sorted(found), *self._pinned(sorted(found))] if found else []

    def _carriers(self, identifiers: Sequence[str]) -> dict[str, list[str]]:
        found = carriers_of(self._store, self._rules, identifiers, self._known_carriers)
        self.hubs.update(Identifier.parse(self._name(text)) for text in found.hubs)
        self.stored_hubs.update(found.hubs)
        return {text: carriers for text, carriers in found.carriers.items() if text not in found.hubs}

    def _root(self, fragment_id: str) -> str:
        above = self._above
        while (parent := above[fragment_id]) != fragment_id:
            above[fragment_id] = fragment_id = above[parent]
        return fragment_id

    def _join(self, one: str, other: str) -> None:
        self._above[self._root(other)] = self._root(one)

    def components(self) -> list[list[Member]]:
        """The readable fragments of each component."""
        for one, other in self._pinned_together:
            if one in self._first_carrier and other in self._first_carrier:
                self._join(self._first_carrier[one], self._first_carrier[other])
        found: dict[str, list[Member]] = defaultdict(list)
        for fragment_id, member in self._members.items():
            found[self._root(fragment_id)].append(member)
        return list(found.values())
