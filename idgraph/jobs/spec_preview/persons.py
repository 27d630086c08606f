"""The persons who would be merged or split if the events of a sample had only ever been mapped by the new
version.

Both sides are the stored evidence with that of the sample. On the new side, the sampled events' evidence by
the old version is left out, also where events outside the sample showed the same.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, cast

from idgraph.jobs.rules_preview import Side, members
from idgraph.model.fragments import FragmentChange
from idgraph.model.jobs import SHOWN
from idgraph.model.pins import PinRecord
from idgraph.model.store import StoredFragment
from ingestion.stages.map_output import MappedEvent
from merge.fragments import FragmentState
from merge.identity.components import Person
from merge.identity.evidence import evidence_of, read_key
from merge.identity.neighbourhood import UNLIMITED, PersonStore
from merge.identity.persons import Persons
from merge.identity.rules import Rules


class EventPair(NamedTuple):
    """The evidence of an event by the one and the other version; None where it is set aside or maps to
    nothing."""

    before: MappedEvent | None
    after: MappedEvent | None

    @property
    def differs(self) -> bool:
        """Whether it shows something else by the new version."""
        return bool(_evidence(self.before) != _evidence(self.after))


class KnownPersons(NamedTuple):
    """The persons of events that no spec maps today: numbers of all, of stored ones, and by type of the
    identifiers that find these. A person may be found by several."""

    persons: int
    known: int
    by: dict[str, int]


class PersonEffect(NamedTuple):
    """The numbers of persons who have fragments or events of several (`merged`), or become several (`split`),
    of `persons` looked at. `known` is None where the version in force maps some of the events."""

    persons: int = 0
    merged: int = 0
    split: int = 0
    merged_examples: tuple[dict[str, Any], ...] = ()
    split_examples: tuple[dict[str, Any], ...] = ()
    known: KnownPersons | None = None


def compare_persons(
    store: PersonStore,
    rules: Rules,
    names: tuple[Callable[[str], str], Callable[[str], str]],
    events: Sequence[EventPair],
) -> PersonEffect:
    """`names` are the forms in which identifiers are compared, before and after. Raises StoreError."""
    differing = [each for each in events if each.differs]
    if not differing:
        return PersonEffect(len({each.before.fragment_id for each in events if each.before is not None}))
    touched = {side.fragment_id for each in differing for side in each if side is not None}
    olds = [each.before for each in events if each.before is not None and each.before.fragment_id in touched]
    news = [each.after for each in events if each.after is not None and each.after.fragment_id in touched]
    stored = store.read(sorted(touched))
    states = {name: FragmentState.decode(each.state) for name, each in stored.items()}
    with_old = _joined(states, olds)
    left = _without(with_old, [each.before for each in differing if each.before is not None], news)
    before, after = (
        Side(
            Persons(cast(PersonStore, SupposedStore(store, stored, there, touched)), rules, name),
            sorted(there),
        )
        for there, name in zip((with_old, left), names, strict=True)
    )
    effect = _compared(before, after, differing, touched)
    if any(each.before is not None for each in events):
        return effect
    return effect._replace(known=_known(after, states, news, names[1]))


def _known(
    after: Side, states: Mapping[str, FragmentState], news: Sequence[MappedEvent], name: Callable[[str], str]
) -> KnownPersons:
    """`states` are those that are stored of the fragments that these events name."""
    identifiers: dict[str, set[str]] = defaultdict(set)
    for each in news:
        identifiers[each.fragment_id].update(name(str(identifier)) for identifier in each.identifiers)
    persons = after.around(identifiers)
    by: Counter[str] = Counter()
    stored_persons = 0
    for person in persons:
        stored: set[str] = set()
        for member in person.members:
            # The stored state of a fragment that the events name, without them.
            fragment_id = member.stored.id
            state = states.get(fragment_id) if fragment_id in identifiers else member.state
            if state is not None:
                stored.update(map(name, (fragment_id, *state.carried())))
        matches = stored & set[str]().union(*(identifiers.get(each, ()) for each in members(person)))
        stored_persons += bool(matches)
        by.update({each.partition(":")[0] for each in matches})
    return KnownPersons(len(persons), stored_persons, dict(by.most_common()))


def _compared(before: Side, after: Side, differing: Sequence[EventPair], touched: set[str]) -> PersonEffect:
    moved: tuple[dict[str, set[str]], dict[str, set[str]]] = defaultdict(set), defaultdict(set)
    for each in differing:
        if each.before is not None and each.after is not None:
            moved[0][each.before.fragment_id].add(each.after.fragment_id)
            moved[1][each.after.fragment_id].add(each.before.fragment_id)
    old, new = before.around(touched), after.around(touched)
    old, new = before.around({*touched, *_names(new)}), after.around({*touched, *_names(old)})
    split = [(each, parts) for each in old if len(parts := _parts(each, after, moved[0])) > 1]
    merged = [(each, parts) for each in new if len(parts := _parts(each, before, moved[1])) > 1]
    return PersonEffect(
        len(old),
        len(merged),
        len(split),
        tuple({"id": each.id, "of": parts} for each, parts in merged[:SHOWN]),
        tuple({"id": each.id, "into": parts} for each, parts in split[:SHOWN]),
    )


def _names(persons: Iterable[Person]) -> Iterator[str]:
    return (name for person in persons for name in members(person))


def _parts(person: Person, others: Side, moved: Mapping[str, set[str]]) -> list[str]:
    """The persons of the other side that have a person's fragments, and its events that are in others there."""
    names = {other for name in members(person) for other in (name, *moved.get(name, ()))}
    return sorted({others.of[name].id for name in names if name in others.of})


def _evidence(event: MappedEvent | None) -> Any:
    if event is None:
        return None
    names, sightings = evidence_of(event.origin, event.identifiers, event.evidence, event.retracts)
    return event.fragment_id, names.keys(), sightings.keys()


def _joined(states: Mapping[str, FragmentState], events: Iterable[MappedEvent]) -> dict[str, FragmentState]:
    """The states with the evidence of these events."""
    found = {name: FragmentState.decode(each.encode()) for name, each in states.items()}
    for each in events:
        state = found.setdefault(each.fragment_id, FragmentState())
        state.apply(
            FragmentChange(
                each.fragment_id,
                each.origin,
                {},
                each.identifiers,
                evidence=each.evidence,
                retracts=each.retracts,
            )
        )
    for state in found.values():
        state.normalise()
    return found


def _without(
    states: Mapping[str, FragmentState], olds: Sequence[MappedEvent], news: Sequence[MappedEvent]
) -> dict[str, FragmentState]:
    """The states without the events' evidence by the old version, and with that by the new one."""
    gone: dict[str, list[MappedEvent]] = defaultdict(list)
    for each in olds:
        gone[each.fragment_id].append(each)
    kept: dict[str, FragmentState] = {}
    named = {each.fragment_id for each in news}
    for name, state in states.items():
        specs = {each.origin.spec.name for each in gone[name]}
        if specs and name not in named and all(each.spec.name in specs for each in state.origins()):
            # All that it has came by this spec, whose events name another fragment now.
            continue
        kept[name] = _reduced(name, state, gone[name], specs)
    return _joined(kept, news)


def _reduced(name: str, state: FragmentState, olds: Sequence[MappedEvent], specs: set[str]) -> FragmentState:
    reduced = FragmentState.decode(state.encode())
    if not olds:
        return reduced
    reduced.encoded = None
    names: set[str] = set()
    for each in olds:
        shown, sightings = evidence_of(each.origin, each.identifiers, each.evidence, each.retracts)
        names |= shown.keys()
        for key in sightings:
            if key in reduced.sightings and all(
                origin.spec.name in specs for origin in reduced.sightings[key]
            ):
                del reduced.sightings[key]
    still = {name, *(other for key in reduced.sightings for other in read_key(key).others)}
    for other in names - still:
        if other in reduced.identifiers and reduced.identifiers[other].spec.name in specs:
            del reduced.identifiers[other]
    reduced.normalise()
    return reduced


class SupposedStore:
    """A store as it would be read if some fragments were others. It writes nothing."""

    def __init__(
        self,
        store: PersonStore,
        stored: Mapping[str, StoredFragment],
        states: Mapping[str, FragmentState],
        touched: set[str],
    ) -> None:
        """`states` of those of `touched` that there would be."""
        self._store = store
        self._touched = touched
        self._fragments = {
            name: stored[name]._replace(state=state.encode())
            if name in stored
            else StoredFragment(name, 1, state.encode())
            for name, state in states.items()
        }
        self._carriers: dict[str, set[str]] = defaultdict(set)
        for name, state in states.items():
            for identifier in {name, *state.carried()}:
                self._carriers[identifier].add(name)

    def read(self, ids: Sequence[str]) -> dict[str, StoredFragment]:
        found = self._store.read([each for each in ids if each not in self._touched])
        return found | {each: self._fragments[each] for each in ids if each in self._fragments}

    def find_all(self, identifiers: Sequence[str], limit: int) -> dict[str, list[str]]:
        # A few more are asked for, in place of those that would not carry them any more.
        known = self._store.find_all(identifiers, min(UNLIMITED, limit + len(self._touched)))
        return {
            each: [
                *(name for name in known.get(each, ()) if name not in self._touched),
                *sorted(self._carriers.get(each, ())),
            ][:limit]
            for each in identifiers
        }

    def pins_of(self, identifiers: Sequence[str]) -> list[PinRecord]:
        return self._store.pins_of(identifiers)

    def consistent_read(self) -> AbstractContextManager[None]:
        return self._store.consistent_read()
