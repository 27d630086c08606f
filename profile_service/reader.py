"""Profiles as product teams see them: found by any identifier or by search, protected values masked.

Persons are resolved when they are read, from their fragments and the rules of the snapshot: an answer never waits for the
projection. A profile's id is that of its oldest fragment; each id of a fragment leads to the profile.
"""

from __future__ import annotations

import copy
import math
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache, lru_cache
from html import escape
from itertools import chain
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from idgraph.model import canonical, paths
from idgraph.model.attributes import Catalogue, DataType, ReconciliationPolicy
from idgraph.model.behaviour import DERIVED, ActivityDocument, DerivedDocument
from idgraph.model.durations import TimeForm, anniversary_days
from idgraph.model.errors import DamagedStateError, KeyProviderError, QueryError, SealError, SpecLimitError
from idgraph.model.fragments import Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.index import FacetCount, IndexDocument, ProfileIndex, SearchPage, Segment
from idgraph.model.queries import (
    All,
    Anniversary,
    AnyOf,
    Clause,
    Condition,
    Exists,
    FullText,
    Not,
    Order,
    Prefix,
    Query,
    Range,
    Term,
    absolute,
    absolute_condition,
    is_relative,
    leaves,
    rewritten,
)
from idgraph.model.query_cost import SORTED, cost_of, require_affordable
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.stamps import SpecRef, Stamp
from idgraph.model.text import nearest
from idgraph.model.timelines import Entry
from idgraph.projection.behaviour import Behaviour, BehaviourReader
from merge.documents import document_of_all
from merge.identity.components import Member, Person
from merge.identity.neighbourhood import PersonStore, carriers_of
from merge.identity.persons import Owners, Persons
from merge.identity.rules import Rules
from merge.resolution import Shown, hides, shown, tree
from profile_service.visibility import (
    HIGHEST,
    MOST_KNOWN,
    NOTHING_GRANTED,
    AuthorizationLevels,
    Granted,
    Visibility,
)
from transforms.privacy.blind_index import BlindIndex
from transforms.privacy.protected_names import StoredNames
from transforms.privacy.sealing import DataKeys, UnusableKey
from transforms.schema.attribute_nodes import AttributePolicy
from transforms.schema.data_types import DATA_TYPES, declared_types
from transforms.schema.policy_tree import PolicyTree, entry_sources, expression_sources

if TYPE_CHECKING:
    from transforms.behaviour.windows import BehaviourSpan

MASK = {"$protected": True}
"""The mask in place of a protected value. No plain leaf can look like it: leaves are never objects."""

UNREADABLE = {"$protected": "unreadable"}
"""The mask in a revealed profile of a value whose key is gone, or that was altered."""


_NO_PATH = "$none"
"""A path that no attribute has: a key of ours never begins so."""


class ProfileLeaf(NamedTuple):
    """One attribute value with where it came from. `value` is `MASK` when protected and not revealed."""

    path: str
    value: Any
    protected: bool
    stored: Shown
    name_origin: Callable[[Origin], Origin]

    @property
    def shown(self) -> Shown:
        """The value that shows, with its origins as they may be shown."""
        return self.stored.named(self.name_origin)

    @property
    def register(self) -> Register:
        """The register whose value shows; the latest, where a policy makes one value of several."""
        return self.shown.newest


class Profile(NamedTuple):
    """One person's profile. `identifiers` and `leaves` are sorted."""

    id: str
    version: int
    identifiers: tuple[Identifier, ...]
    leaves: tuple[ProfileLeaf, ...]
    consents: tuple[dict[str, Any], ...] = ()
    """The consents that an answer rests on, as they may be shown."""

    def __repr__(self) -> str:
        return f"<profile {self.id}, {len(self.identifiers)} identifiers, {len(self.leaves)} attributes>"

    def _repr_html_(self) -> str:
        """For notebooks: the identifiers and the attributes as a table."""
        names = ", ".join(map(str, self.identifiers))
        shown = [(leaf.path, _shown_text(leaf.value)) for leaf in self.leaves]
        rows = "".join(f"<tr><td>{escape(path)}</td><td>{escape(value)}</td></tr>" for path, value in shown)
        return f"<table><caption>{escape(self.id)}<br>{escape(names)}</caption>{rows}</table>"

    def attributes(self) -> dict[str, Any]:
        """The attributes as nested objects."""
        return tree([(leaf.path, leaf.value) for leaf in self.leaves])

    def get(self, path: str, default: Any = None) -> Any:
        """The value of one attribute; `default` if the profile has none."""
        return next((leaf.value for leaf in self.leaves if leaf.path == path), default)

    def canonical(self, provenance: bool) -> dict[str, Any]:
        """The profile as `idgraph export` writes it; the store's version counter is left out (law 1)."""
        body: dict[str, Any] = {
            "id": self.id,
            "identifiers": [{"type": i.type, "value": i.value} for i in self.identifiers],
            "attributes": self.attributes(),
        }
        if provenance:
            body["provenance"] = {leaf.path: provenance_of(leaf) for leaf in self.leaves}
        if self.consents:
            body["consents"] = list(self.consents)
        return body


def _shown_text(value: Any) -> str:
    if value is MASK or value is UNREADABLE:
        return "protected" if value is MASK else "unreadable"
    return value if isinstance(value, str) else canonical.encode(value).decode()


class SearchResult(NamedTuple):
    """A page of profiles, in the order of the search."""

    profiles: list[Profile]
    cursor: str | None


class ProfileReader:
    """Reads profiles. `snapshot` says which identifiers and attributes are matched by keyed hash. `catalogue` returns the
    types of all attributes; without it only those in the snapshot are known. Sees everything, unless made by
    `with_clearance`."""

    def __init__(
        self,
        store: PersonStore,
        index: ProfileIndex,
        data_keys: DataKeys,
        blind_index: BlindIndex,
        snapshot: MetadataSnapshot,
        catalogue: Callable[[], Catalogue] | None = None,
    ) -> None:
        self._store = store
        self._index = index
        self._data_keys = data_keys
        self._blind_index = blind_index
        self._attributes = PolicyTree(snapshot)
        self._is_protected = lru_cache(MOST_KNOWN)(lambda path: self._attributes.policy(path).is_protected)
        self.names = StoredNames(snapshot, blind_index)
        self.damaged: list[str] = []
        """Ids of fragments that were left out because their stored state cannot be read."""
        self.underived: dict[str, str] = {}
        """By path why a definition gave no value for a profile that was returned."""
        self.stale = 0
        """The number of returned profiles whose id is stored in the clear, though policy protects it by now.
        Until it is sealed, the state stored under today's name is another profile of the same id."""
        self.unreadable = 0
        """The number of protected values that were to be revealed and could not be opened."""
        self.shared: list[Identifier] = []
        """Identifiers that were looked up and belong to no profile, by the rules: the returned profiles share
        them."""
        self._declared_types = declared_types(snapshot)
        self._catalogue = catalogue or cache(lambda: Catalogue.of(snapshot.attributes))
        self._levels = AuthorizationLevels(snapshot, self._attributes)
        self._visibilities: dict[tuple[int, Granted], Visibility] = {}
        self._visibility = Visibility(self._levels, HIGHEST)
        self._reads_always: str | None = None
        self.charge: Callable[[int], None] = lambda _: None
        """Is given what each search costs, before it runs."""
        self.rules = Rules(snapshot.identity_rules)
        self._persons = Persons(store, self.rules, name=self.names.identifier)
        rules = self._attributes.index_rules
        self._behaviour = BehaviourReader(store, rules.behaviour, rules.policies)
        self._is_derived = hides(tuple(each.path for each in rules.behaviour.derived))
        self.now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000
        """The moment as of which attributes are derived, in epoch milliseconds."""

    def with_clearance(self, clearance: int, granted: Granted = NOTHING_GRANTED) -> ProfileReader:
        """A reader of the same store, in the same thread, for which attributes above this clearance, and not
        granted, do not exist. Searches, sorting, facets and counts treat them as unknown paths, and
        identifiers taken from them as unknown."""
        reader = copy.copy(self)
        reader.damaged, reader.shared, reader.underived = [], [], {}
        reader.stale = reader.unreadable = 0
        key = clearance, granted
        if key not in self._visibilities:
            self._visibilities[key] = Visibility(self._levels, clearance, granted)
        reader._visibility = self._visibilities[key]
        return reader

    def reading_always(self, path: str) -> ProfileReader:
        """A reader that also reads what is at or below a path, whatever the clearance; `visible` takes it away again."""
        reader = copy.copy(self)
        reader._reads_always = path
        return reader

    def as_of(self, now_ms: int | None = None) -> ProfileReader:
        """A reader that derives all attributes as of one moment, by default now."""
        reader, moment = copy.copy(self), self.now_ms() if now_ms is None else now_ms
        reader.now_ms = lambda: moment
        return reader

    def visible(self, profile: Profile) -> Profile:
        """A profile of this reader without what its clearance hides."""
        if self._reads_always is None:
            return profile
        return profile._replace(leaves=tuple(each for each in profile.leaves if self._shows(each.stored)))

    def _shows(self, leaf: Shown) -> bool:
        sees = self._visibility.sees_sealed if leaf.is_sealed else self._visibility.sees
        return sees(leaf.path)

    def types(self) -> dict[str, DataType]:
        """The types of the known attributes, by path."""
        return self._seen(self._catalogue().shown_types)

    def column_types(self) -> dict[str, DataType]:
        """The types of the known attributes' columns in tables, by path."""
        return self._seen(self._catalogue().column_types)

    def _seen(self, types: dict[str, DataType]) -> dict[str, DataType]:
        if self._visibility.is_total:
            return types
        return {path: kind for path, kind in types.items() if self._visibility.sees(path)}

    def identifier_types(self) -> set[str]:
        """The types of identifiers that active specs take or the rules name."""
        return {
            each for each in (*self._levels.places, *self.rules.document.namespaces) if self.sees_type(each)
        }

    def lookup(self, identifier: Identifier, reveal: bool = False) -> list[Profile]:
        """The profile of an identifier, or of a fragment of this id. An identifier that the rules give to
        nobody, because too many share it, has some of the profiles whose events showed it."""
        return next(self.lookup_each([identifier], reveal))

    def lookup_each(self, identifiers: Sequence[Identifier], reveal: bool = False) -> Iterator[list[Profile]]:
        """`lookup` of each, read together; `damaged` and `shared` are of those that were taken so far."""
        for identifier, found in zip(identifiers, self.owning_each(identifiers), strict=True):
            if found.sharing:
                self.shared.append(identifier)
            yield list(self._profiles(found.persons or found.sharing, reveal))

    def owners(self, identifier: Identifier) -> Owners:
        """The persons whom an identifier belongs to, as far as the reader may see its type."""
        return next(self.owning_each([identifier]))

    def owning_each(self, identifiers: Sequence[Identifier]) -> Iterator[Owners]:
        """`owners` of each, read together. Raises StoreError."""
        sees_type = self._visibility.sees_type
        asked = [self.stored_forms(each) if sees_type(each.type) else () for each in identifiers]
        for found in self._persons.owning_each(asked):
            self._report(found.unreadable)
            yield found

    def profile_of(self, person: Person, reveal: bool = False, behaviour: Behaviour | None = None) -> Profile:
        """The profile of a person as this reader shows it, with a `behaviour` that is known. Raises StoreError,
        DamagedStateError."""
        return self._profile(person, reveal, behaviour or self.behaviour(person))

    def behaviour(self, person: Person) -> Behaviour:
        """The derived attributes of a person. Raises StoreError."""
        return self._behaviour_of([person]).get(person.id, _NO_BEHAVIOUR)

    def _behaviour_of(self, persons: Sequence[Person]) -> Mapping[str, Behaviour]:
        found = self._behaviour.of(persons, self.now_ms())
        self.damaged += [name for name, each in found.items() if each.is_damaged]
        for each in found.values():
            self.underived.update(each.problems)
        return found

    @property
    def behaviour_reader(self) -> BehaviourReader:
        """The reader of behaviour, which sees everything."""
        return self._behaviour

    def activities(self) -> dict[str, ActivityDocument]:
        """The activities in force that exist for this reader: it sees all that decides on their entries."""
        rules = self._attributes.index_rules.behaviour
        return {
            each.name: each for each in rules.activities if all(map(self._sees_source, entry_sources(each)))
        }

    def _sees_source(self, path: str) -> bool:
        return self._visibility.sees(path) if path else self._visibility.is_total

    def timelines(
        self, person: Person, activities: Iterable[str], since: int | None = None, until: int | None = None
    ) -> Iterator[dict[str, list[Entry]]]:
        """The entries of a person at or after `since` and before `until` (epoch milliseconds) by activity, of those of these activities
        that exist for this reader, with the fields that it sees and names as they may be shown: the newest first, then of ever
        more days, at last all. Raises StoreError, DamagedStateError."""
        known = self.activities()
        asked = known.keys() & set(activities)
        visible = {
            name: {field for field, path in known[name].fields.items() if self._visibility.sees(path)}
            for name in asked
        }
        for found in self._behaviour.newest(person, asked, since, until):
            yield {
                name: [self._shown_entry(each, visible[name]) for each in entries]
                for name, entries in found.items()
            }

    def spans(
        self, person: Person, activities: Collection[str] = ()
    ) -> Iterator[tuple[DerivedDocument, list[BehaviourSpan]]]:
        """The sessions and matches of a person as of now, by the derived attribute that the reader sees; with `activities` of
        those that read one of these. A pattern that takes too many steps is left out. Raises StoreError, DamagedStateError."""
        from transforms.behaviour.derivations import spans

        chosen = [
            each
            for each in self._attributes.index_rules.behaviour.derived
            if (each.sessions or each.pattern)
            and all(
                self._visibility.sees(f"{each.path}.{leaf}") for leaf in ("count", "last.begin", "last.end")
            )
            and (not activities or not set(activities).isdisjoint(each.activities))
        ]
        timelines = self._behaviour.timelines(person, {name for each in chosen for name in each.activities})
        for each in chosen:
            with suppress(SpecLimitError):
                yield each, spans(each, timelines, self.now_ms())

    def _shown_entry(self, entry: Entry, visible: Collection[str]) -> Entry:
        _, spec, version = entry.made_by
        stamp = Stamp(0, entry.time, entry.source, entry.event_id)
        return entry._replace(
            event_id=self.names.origin(Origin(stamp, SpecRef(spec, version))).stamp.event_id,
            fields={name: value for name, value in entry.fields.items() if name in visible},
        )

    def try_derived(
        self, definition: DerivedDocument, most: int, models: Mapping[str, bytes]
    ) -> Iterator[tuple[str, dict[str, Any], dict[str, Any]]]:
        """By the first `most` persons in the order of their ids: the name, and by path what stands at or below the path of a
        derived attribute, now and by this definition, with these models besides those in force. Whatever the reader's clearance.
        Raises StoreError."""
        known = self._attributes.index_rules.behaviour
        others = (each for each in known.derived if each.name != definition.name)
        mine = [definition] if definition.status == "active" else []
        drafted = known._replace(derived=(*others, *mine), models={**known.models, **models})
        tried = BehaviourReader(self._store, drafted, self._attributes.policies)
        now, left = self.now_ms(), most
        for named in self._persons.scan(page=min(most, 1000)):
            persons = named.persons[:left]
            before, after = (each.of(persons, now) for each in (self._behaviour, tried))
            for person in persons:
                stated = (found.get(person.id, _NO_BEHAVIOUR).values().items() for found in (before, after))
                old, new = (
                    {path: value for path, value in each if paths.is_within(path, definition.path)}
                    for each in stated
                )
                yield self.shown_name(person.id), old, new
            left -= len(persons)
            if not left:
                return

    def owning(self, forms: Collection[str]) -> Owners:
        """The owner of an identifier, given in its stored forms."""
        return self._persons.owning(forms)

    def owner_of_fragment(self, fragment_id: str) -> Person | None:
        """The person whom a fragment is part of."""
        forms = self.stored_forms(Identifier.parse(fragment_id))
        for person in self.owning(forms).persons:
            if any(each.stored.id in forms for each in person.members):
                return person
        return None

    def elsewhere(self, persons: Collection[Person], also: Iterable[str] = ()) -> dict[str, list[str]]:
        """By id the fragments of other profiles whose events showed an identifier of these persons, or one of the stored forms
        `also`; each with these. Raises StoreError."""
        own = {part.stored.id for each in persons for part in each.members}
        forms = {form for each in persons for name in each.identifiers for form in self.stored_forms(name)}
        carried = carriers_of(self._store, self.rules, forms.union(also)).carriers
        found: dict[str, list[str]] = defaultdict(list)
        for form in sorted(carried):
            for fragment_id in sorted(set(carried[form]) - own):
                found[fragment_id].append(form)
        return found

    def stored_forms(self, identifier: Identifier) -> set[str]:
        """The forms in which an identifier may be stored: as given and normalised, plain and hashed."""
        forms = {identifier, self.rules.identifier(*identifier) or identifier}
        return {str(each) for form in forms for each in (form, self._blind_index.identifier(form))}

    def search(
        self,
        query: Query,
        limit: int = 20,
        cursor: str | None = None,
        reveal: bool = False,
        order: Order | None = None,
    ) -> SearchResult:
        """Profiles that match: by `order`, else the best matches for its words first, else by id. Raises QueryError for a
        query that a protected attribute cannot answer."""
        if order is not None:
            order = order._replace(path=self.require_open(order.path, "sorted by"))
        asked = self._rewrite(query, besides=limit + SORTED * (order is not None))
        return self._found(self._index.search(asked, limit, cursor, order), reveal)

    def segments(self, has_nameless: bool = False) -> dict[str, Segment]:
        """The segments that exist for the caller: those that ask for nothing hidden. The searches of triggers count with
        `has_nameless`."""
        sees = self._visibility
        return {
            each.name: each
            for each in self._attributes.index_rules.segments
            if (has_nameless or ":" not in each.name)
            and (
                sees.is_total
                or all(clause.path is not None and sees.sees(clause.path) for clause in leaves(each.asked))
            )
        }

    def members(
        self, segment: Segment, limit: int, cursor: str | None = None, reveal: bool = False
    ) -> SearchResult:
        """Profiles of a segment, sorted by id, by the index. Raises QueryError for a foreign cursor."""
        self.charge(cost_of(segment.condition) + limit)
        ranked = Order(_NO_PATH) if segment.condition.is_ranked else None
        asked = self._absolute(segment.condition)
        return self._found(self._index.search(asked, limit, cursor, ranked), reveal)

    def count_members(self, segment: Segment) -> int:
        """The number of profiles in a segment."""
        self.charge(cost_of(segment.condition))
        return self._index.count(self._absolute(segment.condition))

    def count_without_consent(self, segment: Segment) -> int:
        """The number of other profiles that match a segment's query, and have not given the consent that it
        needs."""
        self.charge(cost_of(segment.condition))
        others = Query((*segment.asked.clauses, Not(All(segment.condition.clauses))))
        return self._index.count(self._absolute(others))

    def segments_of_each(self, identifiers: Sequence[Identifier]) -> Iterator[list[str] | None]:
        """The segments that the profile of each identifier is in now, by the store, read together. None without a profile."""
        segments = self.segments()
        for found in self.owning_each(identifiers):
            if not found.persons:
                yield None
                continue
            person = found.persons[0]
            known = self._document(person, self.behaviour(person))
            conditions = {name: self._absolute(each.condition) for name, each in segments.items()}
            yield [name for name, each in conditions.items() if self._index.matches(known, each)]

    def _document(self, person: Person, behaviour: Behaviour) -> IndexDocument:
        """The document that the index has of a person with these derived attributes."""
        rules = self._attributes.index_rules
        return document_of_all(person.id, person.version, [person.state()], rules, behaviour.values())

    def _absolute(self, query: Query) -> Query:
        return absolute(query, self.now_ms(), self._attributes.times)

    def time_of(self, path: str) -> TimeForm | None:
        """The form of an attribute that is a time; None for another, and for a hidden one."""
        return self._attributes.times.get(path) if self._visibility.sees(path) else None

    def is_in(self, person: Person, segment: Segment, at_ms: int) -> bool:
        """Whether a person is in a segment as of a moment (epoch milliseconds): by her present attributes, and what is
        derived then."""
        asked = absolute(segment.condition, at_ms, self._attributes.times)
        return self._index.matches(self._document_at(person, at_ms), asked)

    def value_at(self, person: Person, path: str, at_ms: int) -> Any:
        """The value of an attribute at such a moment, as the index has it."""
        return self._document_at(person, at_ms).fields.get(path)

    def _document_at(self, person: Person, at_ms: int) -> IndexDocument:
        return self._document(person, self._behaviour.of([person], at_ms).get(person.id, _NO_BEHAVIOUR))

    def follows_clock(self, segment: Segment) -> bool:
        """Whether somebody can enter or leave it without an event."""
        derived = self._attributes.index_rules.behaviour.derived
        asked = [each.path or "" for each in leaves(segment.condition)]
        is_derived = any(paths.overlap(path, each.path) for path in asked for each in derived)
        return is_derived or is_relative(segment.condition)

    def events_of(self, person: Person, segment: Segment) -> tuple[int, int]:
        """The least ordinal of a person's events, and the greatest of those behind the attributes that a segment asks for,
        and that those are made of; 0 without any. Timelines do not count."""
        asked = {each.path or "" for each in leaves(segment.condition)}
        for each in self._attributes.index_rules.behaviour.derived:
            if any(paths.overlap(path, each.path) for path in asked):
                asked |= set(expression_sources(each.expression)) if each.expression is not None else set()
                asked |= {one.path for one in each.model.inputs} if each.model is not None else set()
        state = person.state()
        origins = chain(
            ((path, each.origin) for path, each in state.registers.items()),
            (
                (path, one)
                for path, cells in state.cells.items()
                for each in cells.values()
                for one in each.origins()
            ),
        )
        oldest = min((each.stamp.ordinal for each in state.origins()), default=0)
        return oldest, max(
            (one.stamp.ordinal for path, one in origins if any(paths.overlap(path, each) for each in asked)),
            default=0,
        )

    def _found(self, page: SearchPage, reveal: bool) -> SearchResult:
        persons = self._persons.around(page.ids)
        self._report(persons.unreadable)
        # The index may know a profile by the id that it had a moment ago.
        of_fragment = {each.stored.id: person for person in persons.persons() for each in person.members}
        found = {of_fragment[name].id: of_fragment[name] for name in page.ids if name in of_fragment}
        return SearchResult(list(self._profiles(found.values(), reveal)), page.cursor)

    def facets(self, query: Query, asked: Sequence[str], limit: int = 10) -> dict[str, list[FacetCount]]:
        """By attribute path, its most frequent values among profiles that match. Raises QueryError as `search` does."""
        places = {path: self.require_open(path, "counted by value") for path in asked}
        rewritten = self._rewrite(query, len(places), SORTED * len(places))
        return {path: self._index.facets(rewritten, place, limit) for path, place in places.items()}

    def count(self, query: Query) -> int:
        """The number of profiles that match."""
        return self._index.count(self._rewrite(query))

    def found_type(self, path: str) -> DataType | None:
        """The type of the values that profiles have of an attribute; `array` where they have several. None without any."""
        if not self._visibility.sees(path):
            return None
        kinds: dict[DataType, Condition] = {
            DataType.NUMBER: Range(path, lower=-math.inf),
            DataType.STRING: Prefix(path, ""),
            DataType.BOOLEAN: AnyOf((Term(path, True), Term(path, False))),
        }
        found = [kind for kind, clause in kinds.items() if self._index.count(Query((clause,)))]
        return found[0] if len(found) == 1 else DataType.ARRAY if found else None

    def scan(self, reveal: bool = False, by_fragment: bool = False) -> Iterator[Profile]:
        """All profiles, sorted by the id that is stored, a page in memory at a time; `by_fragment` each fragment as one."""
        for named in self._persons.fragments() if by_fragment else self._persons.scan():
            self._report(named.unreadable)
            yield from self._profiles(named.persons, reveal)

    def _report(self, unreadable: Iterable[str]) -> None:
        self.damaged += sorted(unreadable)

    def _profiles(self, persons: Iterable[Person], reveal: bool) -> Iterator[Profile]:
        persons = list(persons)
        behaviour = self._behaviour_of(persons)
        for person in persons:
            try:
                yield self._profile(person, reveal, behaviour.get(person.id, _NO_BEHAVIOUR))
            except DamagedStateError:
                self.damaged.append(person.id)

    def policy(self, path: str) -> AttributePolicy:
        """The policy of an attribute, declared or not."""
        return self._attributes.policy(path)

    def require_open(self, path: str, use: str) -> str:
        """The path to ask the index for. Raises QueryError for a protected attribute."""
        asked = self._asked_path(path)
        if self._attributes.policy(asked).is_protected:
            raise QueryError(f"{path} is protected and cannot be {use}")
        return asked

    def _asked_path(self, path: str) -> str:
        """The path; for a hidden one a path that no attribute has, below the same visible ones: it answers as
        an unknown one."""
        path = paths.join(paths.split(path))
        if self._visibility.sees(path):
            return path
        places = (f"{each}.{_NO_PATH}" for each in (path, *paths.ancestors(path)))
        return next(filter(self._visibility.sees, places), _NO_PATH)

    def _rewrite(self, query: Query, times: int = 1, besides: int = 0) -> Query:
        """The query to ask the index for, which it answers `times`; its cost is checked and charged first.
        Raises QueryCostError before the query is rewritten."""
        is_anywhere = not self._visibility.is_total and any(each.path is None for each in leaves(query))
        places = self._searched() if is_anywhere else []
        self.charge(require_affordable(query, max(1, len(places)), times, besides))
        now_ms = self.now_ms()
        return rewritten(query, lambda clause: self._rewrite_clause(clause, places, now_ms))

    def _rewrite_clause(self, clause: Clause, places: Sequence[str], now_ms: int) -> Condition:
        if clause.path is None:
            return clause if self._visibility.is_total else _anywhere(clause, places)
        path = self._asked_path(clause.path)
        policy = self._attributes.policy(path)
        if not policy.is_protected:
            clause = clause._replace(path=path)
            return absolute_condition(clause, now_ms, self._attributes.times)
        if not policy.is_searchable:
            raise QueryError(f"{clause.path} is protected and cannot be searched")
        if isinstance(clause, Exists):
            return Exists(path)
        if isinstance(clause, Anniversary):
            days = (Term(path, day) for day in anniversary_days(str(clause.value), now_ms))
            return AnyOf(tuple(self._rewrite_clause(each, places, now_ms) for each in days))
        if not isinstance(clause, Term):
            # The index holds tokens there: their order and their beginnings mean nothing.
            raise QueryError(
                f"{clause.path} is protected and can only be searched by its whole value, with ="
            )
        read_as = self._declared_types.get(path, DATA_TYPES[type(clause.value)])
        return Term(path, self._blind_index.token(path, clause.value, read_as))

    def _searched(self) -> list[str]:
        """The paths in which words without a path are looked for, if some attributes are hidden."""
        texts = (DataType.STRING, DataType.ARRAY)
        return [
            path
            for path, kind in self.types().items()
            if kind in texts and not self._attributes.policy(path).is_protected
        ]

    def take_incomplete(self) -> dict[str, Any]:
        """The faults of what was read since the last call, for a caller from whom nothing is hidden: `stale` profiles stored
        under an identifier that is protected by now, `unreadable` values, and ids of `damaged` fragments, and by path why
        something is `underived`. Without those that did not occur."""
        found = {
            "stale": self.stale,
            "unreadable": self.unreadable,
            "damaged": self.damaged[:],
            "underived": dict(self.underived),
        }
        self.stale = self.unreadable = 0
        self.underived.clear()
        self.damaged.clear()
        return {name: value for name, value in found.items() if value} if self.sees_all else {}

    def sees(self, path: str) -> bool:
        """Whether an attribute may be shown."""
        return self._visibility.sees(path)

    @property
    def sees_all(self) -> bool:
        """Whether nothing is hidden."""
        return self._visibility.is_total

    def shown_text(self, text: str) -> str:
        """A message; empty where it names what is hidden."""
        return "" if self._visibility.names_hidden(text) else text

    def sees_type(self, kind: str) -> bool:
        """Whether identifiers of this type may be shown."""
        return self._visibility.sees_type(kind)

    def is_hidden_type(self, kind: str) -> bool:
        """Whether active specs take identifiers of this type, and they may not be shown."""
        return kind in self._levels.places and not self._visibility.sees_type(kind)

    def hint_of_type(self, kind: str) -> str:
        """A text for somebody who looks up by a type that no active spec makes; empty for one that some spec makes."""
        known = [each for each in self._levels.places if self._visibility.sees_type(each)]
        if kind in known or not known:
            return ""
        near = nearest(kind, known)
        hint = f"did you mean {near}?" if near else f"they make {', '.join(sorted(known))}"
        return f"no active spec makes the type {kind}: {hint}"

    def shown_name(self, stored: str) -> str:
        """A stored identifier or id as it is shown; hashed, where policy protects it or a clearance hides it."""
        name = self.names.identifier(stored)
        own = Identifier.parse(name)
        return name if self._visibility.sees_type(own.type) else str(self._blind_index.identifier(own))

    def shown_by(self, member: Member) -> dict[str, Origin]:
        """The identifiers that a fragment's events showed, with the earliest event of each, as they may be shown."""
        found: dict[str, Origin] = {}
        for text, said in member.state.shown().items():
            name, origin = self.names.identifier(text), self.names.origin(said)
            # Stored under both names, it shows the earlier event, which `seal` keeps.
            if self._visibility.sees_type(text.partition(":")[0]):
                found[name] = min(origin, found.get(name, origin))
        return found

    def _profile(self, person: Person, reveal: bool, behaviour: Behaviour) -> Profile:
        shows, always = self._shows, self._reads_always
        stored = shown(person.state(), self._attributes.policies)
        if not self._behaviour.is_empty:
            stored = chain((each for each in stored if not self._is_derived(each.path)), behaviour.leaves)
        leaves = sorted(stored, key=itemgetter(0))  # by path
        if not self._visibility.sees_all_sealed:
            leaves = [
                each
                for each in leaves
                if shows(each) or (always is not None and paths.is_within(each.path, always))
            ]
        # Names are shown as today's events have them: one that was stored before policy protected it is hidden.
        self.stale += self.names.identifier(person.id) != person.id
        return Profile(
            self.shown_name(person.id),
            person.version,
            tuple(each for each in person.identifiers if self._visibility.sees_type(each.type)),
            tuple(self._leaves(person, leaves, reveal)),
        )

    def candidates(self, person: Person) -> Iterator[tuple[ProfileLeaf, list[ProfileLeaf]]]:
        """Each value that shows, masked where it is protected, and the values of the person's other fragments that lost
        against it, the latest first; None in place of one that was deleted. Within a fragment, only what a policy keeps
        is left of earlier values."""
        kept: dict[str, list[Register]] = defaultdict(list)
        for member in person.members:
            for path, register in member.state.registers.items():
                kept[path].append(register)
        for leaf in self.profile_of(person).leaves:
            own = {part.origin for part in leaf.stored.parts}
            others = [each for each in kept[leaf.path] if each.origin not in own]
            others.sort(key=lambda each: each.origin, reverse=True)
            is_masked = [leaf.protected or each.kind is Kind.SEALED for each in others]
            yield (
                leaf,
                [
                    leaf._replace(stored=Shown(leaf.path, (each,)), value=MASK if masked else each.value)
                    for each, masked in zip(others, is_masked, strict=True)
                ],
            )

    def _leaves(self, person: Person, leaves: Sequence[Shown], reveal: bool) -> Iterator[ProfileLeaf]:
        opens = reveal and any(each.is_sealed for each in leaves)
        keys = (
            self._data_keys.fetch([each.stored.id for each in person.members], create=False) if opens else {}
        )
        # A key that its service cannot open now is no unreadable value.
        for key in keys.values():
            if isinstance(key, UnusableKey) and (away := key.service_error()):
                raise away
        origin, is_protected = self.names.origin, self._is_protected
        for each in leaves:
            # A protected value that is not sealed was stored before policy protected it, or is a count.
            protected = each.is_sealed or is_protected(each.path)
            if protected:
                value = _opened_value(keys, each) if reveal else MASK
            else:
                value = each.value([part.value for part in each.parts])
            self.unreadable += value is UNREADABLE
            yield ProfileLeaf(each.path, value, protected, each, origin)


_NO_BEHAVIOUR = Behaviour()


def _anywhere(clause: FullText, places: Sequence[str]) -> Condition:
    """The indexed text also has the words of hidden attributes: each word is looked for in every visible one,
    `places`."""
    words = clause.words.split()
    return All(
        tuple(
            AnyOf(
                tuple(
                    clause._replace(
                        words=word, path=path, is_prefix=clause.is_prefix and place == len(words) - 1
                    )
                    for path in places
                )
            )
            for place, word in enumerate(words)
        )
        or (AnyOf(()),)
    )


def _opened_value(keys: Mapping[str, Any], each: Shown) -> Any:
    sealed = Kind.SEALED
    values = [_opened(keys, each.path, part) if part.kind is sealed else part.value for part in each.parts]
    return UNREADABLE if any(value is UNREADABLE for value in values) else each.value(values)


def _opened(keys: Mapping[str, Any], path: str, register: Register) -> Any:
    """A sealed value, by the key of the fragment that it came with: the one key that opens it."""
    for key in keys.values():
        with suppress(SealError, KeyProviderError):
            return key.open(register.value, path, register.stamp)
    return UNREADABLE


def provenance_of(leaf: ProfileLeaf) -> dict[str, Any]:
    """The origin of a value. If a policy made it of several: the latest event, the number of values, and
    whether these are all."""
    found = leaf.shown
    stamp, _ = newest = found.newest.origin
    origin = {"source": stamp.source, "priority": stamp.priority} | origin_document(newest)
    if newest.spec.name.startswith(DERIVED):
        # A value that rests on no entry has an origin without an event.
        number = len(found.parts) if stamp.event_id else 0
        return origin | {"entries": number, "complete": found.is_complete}
    if found.policy is ReconciliationPolicy.LATEST:
        return origin
    return origin | {"policy": found.policy, "values": len(found.parts), "complete": found.is_complete}


def origin_document(origin: Origin) -> dict[str, Any]:
    """An event, and the spec version that mapped it."""
    stamp, spec = origin
    named = {"event": stamp.event_id, "ordinal": stamp.ordinal}
    return named | {"spec": spec.name, "spec_version": spec.version}
