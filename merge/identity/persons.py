"""Persons of a store: stored fragments, grouped by the rules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain, islice
from typing import NamedTuple

from idgraph.model.batch_size import BatchSize
from idgraph.model.errors import DamagedStateError
from idgraph.model.identifiers import Identifier
from idgraph.model.pins import PinRecord
from idgraph.model.store import StoredFragment, read_pages
from merge.fragments import FragmentState
from merge.identity.components import Component, Member, Person, resolved, shown_by, undisputed
from merge.identity.neighbourhood import NOTHING_KNOWN, Neighbourhood, PersonStore
from merge.identity.rules import Rules

MOST_SHARING = 100
"""Persons that are named of those that share an identifier."""
_READ_AT_ONCE = 10_000
_MOST_AHEAD = 200_000
"""Fragments whose person is remembered until her page comes."""


class Found(NamedTuple):
    """Components, and in `alone` persons of one fragment that no component has: only `around` without `resolves_all` finds
    any. By id why fragments could not be read, without any value; and the identifiers, as they are stored, that more
    fragments carry than their hub limit allows. `not_hubs` are those that a fragment carries no more, as an event was taken
    back, and that are no hubs."""

    components: list[Component]
    alone: list[Person]
    unreadable: dict[str, str]
    hubs: set[str]
    not_hubs: set[str]

    def persons(self) -> list[Person]:
        """All persons, sorted by id."""
        return sorted([*self.alone, *(person for each in self.components for person in each.persons)])


class Named(NamedTuple):
    """Persons sorted by id, and by id why fragments could not be read, without any value."""

    persons: list[Person]
    unreadable: dict[str, str]


class Owners(NamedTuple):
    """The persons that an identifier belongs to, sorted by id: one, or several where it is stored in several forms.
    If it belongs to nobody, `sharing` are those whose events showed it, at most `MOST_SHARING`."""

    persons: list[Person]
    sharing: list[Person]
    unreadable: dict[str, str]


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

        Without `resolves_all` only fragments that share identifiers are resolved, and a person that no rule can divide has no
        identifiers. `supposed` decisions count as
        if they were stored. `known` are identifiers with all fragments that carry them: these are not asked for again.
        """
        is_short = not (resolves_all or supposed or known) and self._name is str
        read = Neighbourhood(self._store, self._rules, self._name, self._size, supposed, known, is_short)
        with self._store.consistent_read():
            read.extend(ids)
        components = []
        decided = {*map(str, read.pins), *read.stored_hubs}
        parse = cache(self.parse)
        for members in read.components():
            person = None
            if len(members) == 1 and not resolves_all:
                person = Person(members[0].stored.id, (members[0],), ())
            elif is_short:
                person = undisputed(members, self._rules, decided)
            components.append(
                resolved(members, self._rules, read.pins, read.hubs, parse)
                if person is None
                else Component((person,))
            )
        return Found(
            components,
            [Person(each.stored.id, (each,), ()) for each in read.alone],
            read.unreadable,
            read.stored_hubs,
            read.taken_back - read.stored_hubs,
        )

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
            named = Named([], {})
            for each in (stored[name] for name in ids if name in stored):
                try:
                    member = Member(each, FragmentState.decode(each.state))
                except DamagedStateError:
                    named.unreadable[each.id] = "its stored state is damaged"
                    continue
                own, carried = self.parse(each.id), shown_by(member, self.parse)
                identifiers = tuple(sorted({own, *carried}))
                named.persons.append(Person(each.id, (member,), identifiers))
            yield named


class _Outline(NamedTuple):
    """A person without the states of her fragments."""

    id: str
    fragments: tuple[StoredFragment, ...]
    identifiers: tuple[Identifier, ...]
