"""Persons of a store: incremental equals from scratch, over every documented scenario."""

from __future__ import annotations

import json
import random
import sqlite3
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from hashlib import blake2b, sha256
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model.errors import ProfileIndexError, StoreError
from idgraph.model.fragments import FragmentChange, Kind, Origin, Register
from idgraph.model.identifiers import Identifier
from idgraph.model.identity_events import IdentityEvent, PinDocument
from idgraph.model.identity_rules import IdentityRules
from idgraph.model.index import IndexDocument, IndexRules, Segment
from idgraph.model.ledger import CHANGES, Crossing
from idgraph.model.pins import PinRecord
from idgraph.model.queries import Condition, Exists, Not, Query
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.stamps import SpecRef, Stamp, epoch_ms
from idgraph.model.store import Assignment, ProfileStore
from idgraph.model.tombstones import NO_EPOCH
from idgraph.projection.documents import documents_of
from idgraph.projection.moves import MOVES
from idgraph.projection.projection import Projection
from merge.commit import Committer
from merge.fragments import FragmentState
from merge.identity.components import Person
from merge.identity.evidence import options_of
from merge.identity.persons import Persons
from merge.identity.resolve import Decision
from merge.identity.rules import Rules
from profile_service.links import Links
from sinks.sqlite.profiles import SqliteProfileStore
from tests.lanes import examples
from tests.merge.identity.test_resolve import EVENTS, PINS, RULES
from tests.projecting import Shuffled
from tests.retail import Pipeline
from tests.support.memory.index import MemoryProfileIndex
from tests.support.memory.profiles import MemoryProfileStore

ALWAYS_RETRACTING = [
    {"id": f"r-{source}", "t": "2026-03-02T09:00:00Z", "source": source, "retracts": "nothing"}
    for source in ("web", "crm")
]

CASES = [json.loads(line) for line in (Path(__file__).parent / "cases.jsonl").read_text().splitlines()]


def segment(name: str, *conditions: Condition, version: int = 1) -> Segment:
    return Segment(name, version, Query(conditions), Query(conditions), changes=name == "everybody")


SEGMENTS = (
    segment("everybody"),
    segment("web", Exists("seen.web")),
    segment("web alone", Exists("seen.web"), Not(Exists("seen.crm"))),
)


def options(event: IdentityEvent) -> str | None:
    """The options of a spec that says what the event says of itself; None if types cannot say it."""
    links = None
    if event.links is not None:
        types = {tuple(sorted((one[0], other[0]))) for one, other in event.links}
        every = {
            frozenset(pair)
            for pair in combinations(event.ids, 2)
            if tuple(sorted((pair[0][0], pair[1][0]))) in types
        }
        if every != {frozenset(pair) for pair in event.links}:
            return None
        links = sorted((one, other) for one, other in types)
    return options_of(event.strength, links)


class Installation:
    """A store with its projection, under the rules of a case."""

    def __init__(self, case: dict[str, Any], store: ProfileStore | None = None) -> None:
        document = IdentityRules.model_validate(case["rules"])
        self.rules = Rules(document)
        self.index_rules = IndexRules(lambda _: True, identity=document, segments=SEGMENTS)
        self.store = MemoryProfileStore() if store is None else store
        self.index = MemoryProfileIndex()
        self.projection = Projection(self.store, self.index, lambda: self.index_rules, 3)
        events = [IdentityEvent.model_validate(each) for each in case.get("events", ())]
        self.events = {(each.source, each.id): each for each in events}
        self.retracting = {each.source for each in events if each.retracts is not None}
        """The sources whose spec says how an event is taken back."""
        self.erased: set[str] = set()

    def project_in_tasks(self, random: random.Random) -> None:
        """Sweeps leave their parts to tasks from now on."""
        one = partial(Projection, self.store, self.index, lambda: self.index_rules, 3)
        tasks = Shuffled(self.store, one, random)
        self.projection = one(tasks)

    def take(self, events: Iterable[IdentityEvent]) -> None:
        """Commit events as one batch."""
        changes: dict[str, FragmentState] = {}
        for event in events:
            # What takes an event back has the primary identifier of that one.
            named = event if event.retracts is None else self.events.get((event.source, event.retracts))
            identifiers = () if named is None else self.rules.identifiers(named.ids)
            if not identifiers:
                continue
            origin = Origin(Stamp(0, epoch_ms(event.t), event.source, event.id), SpecRef("s", 1))
            values = {f"seen.{event.source}": Register(origin, Kind.PLAIN, event.id)}
            change = FragmentChange(
                str(identifiers[0]),
                origin,
                values,
                identifiers,
                evidence=options(event) or "",
                retracts=(event.retracts or "") if event.source in self.retracting else None,
            )
            changes.setdefault(change.fragment_id, FragmentState()).apply(change)
        Committer(self.store).commit(changes)

    def pin(self, pins: Sequence[PinDocument]) -> None:
        """Store decisions, as `idgraph links` does."""
        records = []
        for each in pins:
            found = self.rules.identifiers(each.pair)
            if len(found) == 2:
                low, high = map(str, sorted(found))
                records.append(PinRecord(low, high, epoch_ms(each.t), each.decision, each.who, each.why))
        self.store.add_pins(records)
        named = sorted({name for each in records for name in each[:2]})
        self.store.enqueue([one for ids in self.store.find_all(named, 1000).values() for one in ids])

    def persons(self) -> dict[str, list[Identifier]]:
        """By profile id, resolved from all that is stored."""
        return {each.id: list(each.identifiers) for each in self._persons()}

    def _persons(self) -> list[Person]:
        return [each for page in Persons(self.store, self.rules).scan() for each in page.persons]

    def shown(self) -> dict[str, list[Identifier]]:
        """The same, without persons whose fragments no event names that still counts: their attributes stay."""
        gone = {(each.source, each.retracts) for each in self.events.values()}
        naming = {
            str(identifiers[0])
            for key, each in self.events.items()
            if key not in gone and (identifiers := self.rules.identifiers(each.ids))
        }
        return {
            each.id: list(each.identifiers)
            for each in self._persons()
            if not naming.isdisjoint(member.stored.id for member in each.members)
        }

    def check_index(self) -> None:
        """The index has what a projection of everything would write."""
        self.projection.sweep()
        assert self.store.outbox() == []
        persons = self._persons()
        documents = documents_of(persons, self.index_rules).documents
        assert self.index.search(Query(), 1000).ids == sorted(each.id for each in documents)
        found = self.index.compare(documents)
        assert all(found[each.id].is_same for each in documents)
        self._check_ledger(persons)
        self.check_segments()

    def documents(self) -> dict[str, dict[str, Any]]:
        """The fields of each document; versions may count more of what came to the same."""
        return {each.id: dict(each.fields) for each in self.index._documents.values()}

    def check_segments(self) -> None:
        """By the ledger, those are in a segment whom a search finds, and each entered before it left, and once."""
        inside: dict[str, set[bytes]] = {each.name: set() for each in SEGMENTS}
        changed: dict[bytes, int] = {}
        for each in self.store.ledger(limit=sys.maxsize):
            if isinstance(each, Crossing) and isinstance(each.profile, bytes):
                if each.segment == MOVES:
                    continue
                if each.is_change:
                    assert each.segment == SEGMENTS[0].name + CHANGES
                    changed[each.profile] = max(each.number, changed.get(each.profile, 0))
                    continue
                assert (each.kind == "entered") is (each.profile not in inside[each.segment])
                inside[each.segment] ^= {each.profile}
        for segment in self.index_rules.segments:
            found = self.index.search(segment.condition, 1000).ids
            assert inside[segment.name] == set(map(self.store.name, found))
            if segment.changes:
                versions = self.index.versions(found)
                assert versions == {name: changed[self.store.name(name)] for name in found}

    def _check_ledger(self, persons: Sequence[Person]) -> None:
        """Its entries lead from each fragment's own profile, without a gap, to the one that the fragment is part of."""
        profiles: dict[bytes, bytes] = {}
        for each in self.store.ledger(limit=sys.maxsize):
            if isinstance(each, Crossing):
                continue
            # One that comes back after an erasure begins with its own profile.
            assert each.previous in (profiles.get(each.fragment, each.fragment), each.fragment)
            assert each.previous != each.profile
            profiles[each.fragment] = each.profile
        # One that came back and stayed by itself has no entry again.
        members = {
            each.stored.id: person.id
            for person in persons
            for each in person.members
            if each.stored.id not in self.erased
        }
        assert members == {each: profiles.get(each.encode(), each.encode()).decode() for each in members}


def usable(case: dict[str, Any]) -> bool:
    """Whether fragments and specs can say it."""
    if not case["expressible"]:
        return False
    events = [IdentityEvent.model_validate(each) for each in case["events"]]
    return all(options(each) is not None for each in events)


def expected(case: dict[str, Any], rules: Rules) -> list[list[Identifier]]:
    """The persons that have a profile: an identifier that never names a fragment and joins nobody has none."""
    events = [IdentityEvent.model_validate(each) for each in case["events"]]
    gone = {(each.source, each.retracts) for each in events}
    active = [each for each in events if (each.source, each.id) not in gone]
    naming = {found[0] for each in active if (found := rules.identifiers(each.ids))}
    parts = [sorted(Identifier(*each) for each in part) for part in case["expected"]]
    return sorted(part for part in parts if not naming.isdisjoint(part))


@pytest.mark.parametrize("case", [each for each in CASES if usable(each)], ids=lambda case: str(case["name"]))
def test_incremental_equals_from_scratch(case: dict[str, Any]) -> None:
    events = [IdentityEvent.model_validate(each) for each in case["events"]]
    pins = [PinDocument.model_validate(each) for each in case.get("pins", ())]
    shuffled = random.Random(case["name"])
    found = []
    for _ in range(3):
        order: list[IdentityEvent | PinDocument] = [*events, *events, *pins]
        shuffled.shuffle(order)
        # A look at the index reads all that is stored; in the long lane there is one after every other event.
        often = min(0.5, examples(len(order)) / len(order))
        installation = Installation(case)
        for each in order:
            if isinstance(each, PinDocument):
                installation.pin([each])
            else:
                installation.take([each])
            if shuffled.random() < often:
                installation.check_index()
        installation.pin(pins)
        installation.check_index()
        found.append(installation.persons())
    assert found[0] == found[1] == found[2]
    assert sorted(installation.shown().values()) == expected(case, installation.rules)


def retractions(events: Any, data: st.DataObject) -> tuple[set[str], list[dict[str, Any]]]:
    """The ids of some events, and events that take these back."""
    gone = data.draw(st.sets(st.sampled_from([each["id"] for each in events]))) if events else set()
    return gone, [
        {"id": f"r-{each['id']}", "t": each["t"], "source": each["source"], "retracts": each["id"]}
        for each in events
        if each["id"] in gone
    ]


@settings(max_examples=examples(60), deadline=None)
@given(RULES, EVENTS, PINS, st.data())
def test_a_retracted_event_has_never_been_stored(
    rules: Any, events: Any, pins: Any, data: st.DataObject
) -> None:
    """Laws 1 and 2, in the store and in the index after every prefix."""
    gone, taken_back = retractions(events, data)
    case = {"rules": rules, "events": [*events, *taken_back, *ALWAYS_RETRACTING]}
    decisions = [PinDocument.model_validate(each) for each in pins]
    installation = Installation(case)
    arriving = [IdentityEvent.model_validate(each) for each in (*events, *taken_back)]
    order: list[IdentityEvent | PinDocument] = data.draw(st.permutations([*arriving, *decisions]))
    while order:
        size = data.draw(st.integers(1, 4))
        some, order = order[:size], order[size:]
        installation.take(each for each in some if isinstance(each, IdentityEvent))
        installation.pin([each for each in some if isinstance(each, PinDocument)])
        installation.check_index()
    installation.take(arriving)
    installation.check_index()
    scratch = Installation({**case, "events": [each for each in events if each["id"] not in gone]})
    scratch.take(scratch.events.values())
    scratch.pin(decisions)
    assert installation.shown() == scratch.persons()
    named = {each for event in installation.events.values() for each in scratch.rules.identifiers(event.ids)}
    for name in map(str, named):
        found = [each for each in installation.store.find(name) if each != name]
        assert found == [each for each in scratch.store.find(name) if each != name]


@settings(max_examples=examples(150), deadline=None)
@given(RULES, RULES, EVENTS, PINS, st.randoms(use_true_random=False), st.data())
def test_any_split_of_the_outbox_into_parts_gives_the_same_index(
    rules: Any, later: Any, events: Any, pins: Any, shuffled: random.Random, data: st.DataObject
) -> None:
    """Parts in any order, repeated, by several projections; with hubs, decisions, erasures, new rules and segments."""
    _, taken_back = retractions(events, data)
    case = {"rules": rules, "events": [*events, *taken_back, *ALWAYS_RETRACTING]}
    whole, split = Installation(case), Installation(case)
    split.project_in_tasks(shuffled)
    decisions = [PinDocument.model_validate(each) for each in pins]
    arriving = [IdentityEvent.model_validate(each) for each in (*events, *taken_back)]
    order: list[IdentityEvent | PinDocument] = data.draw(st.permutations([*arriving, *decisions]))
    moment = data.draw(st.integers(0, len(order)))
    while order:
        some, order = order[:3], order[3:]
        stored = list(whole.store.ids())
        erased = sorted(data.draw(st.sets(st.sampled_from(stored), max_size=2))) if stored else []
        for each in (whole, split):
            each.take(event for event in some if isinstance(event, IdentityEvent))
            each.pin([pin for pin in some if isinstance(pin, PinDocument)])
            erase_some(each, erased)
            if len(order) <= moment < len(order) + 3:
                follow(each, later, 1)
            each.check_index()
        assert split.documents() == whole.documents()


def test_what_was_a_part_of_a_profile_and_is_erased_leaves_its_document() -> None:
    installation = Installation(
        {"rules": {"namespaces": {"user": {"priority": 1}, "email": {"priority": 2}}}}
    )
    installation.take([shared(number, "a@x.example") for number in range(1, 4)])
    installation.check_index()
    (profile,) = installation.persons()
    last = "user:3"
    assert profile != last
    installation.store.erase([last], 0)
    installation.projection.project([last])
    installation.projection.project(["user:1", "user:2"], has_lost=True)
    installation.check_index()
    assert list(installation.persons()) == [profile]


def erase(installation: Installation, *ids: str) -> None:
    """Erase fragments, as `idgraph erase` does; later events of theirs count."""
    installation.store.erase(list(ids), NO_EPOCH)
    installation.projection.project(ids)
    installation.store.finish(list(ids))
    installation.store.cancel(list(ids))


def erase_some(installation: Installation, ids: Sequence[str]) -> None:
    """Erase any fragments of any persons, whose documents the next sweep erases."""
    store, projection = installation.store, installation.projection
    installation.erased.update(ids)
    names = {name for each in ids for name in (each, *store.identifiers(each))}
    store.erase(list(ids), NO_EPOCH)
    for name in names:
        projection.forget_hub(name)
    projection.project(store.ids(), has_lost=True)
    installation.check_index()
    store.finish(list(ids))
    store.cancel(list(ids))


def test_a_person_who_comes_back_and_is_erased_again_is_gone() -> None:
    """Found by a reader: what a fragment's version keeps of epochs before its erasure overflowed into those after it."""
    installation = Installation(HUB)
    both = [shared(1, "a@x.example"), shared(2, "a@x.example")]
    for _ in range(3):
        installation.take(both)
        installation.check_index()
        assert list(installation.persons()) == ["user:1"]
        erase(installation, "user:1", "user:2")
        installation.check_index()
        assert installation.index.search(Query(), 10).ids == []


class Interrupted(MemoryProfileIndex):
    """An index during whose next put something else happens."""

    meanwhile: Callable[[], None] | None = None

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        happens, self.meanwhile = self.meanwhile, None
        if happens is not None:
            happens()
        return super().put(documents)


class Counting(MemoryProfileIndex):
    """Counts the documents that it is given."""

    given = 0

    def put(self, documents: Sequence[IndexDocument]) -> dict[str, str]:
        self.given += len(documents)
        return super().put(documents)


def test_a_person_whose_fragments_join_over_pages_of_the_outbox_is_projected_once() -> None:
    installation = Installation({"rules": {}})
    installation.index = index = Counting()
    installation.projection = Projection(installation.store, index, lambda: installation.index_rules, 3)
    installation.take([shared(number, f"{number % 2}@x.example") for number in range(10)])
    installation.check_index()
    assert index.given == len(installation.persons()) == 2


def test_a_person_who_comes_back_over_pages_of_the_outbox_is_projected_once() -> None:
    installation = Installation({"rules": {}})
    installation.index = index = Counting()
    installation.projection = Projection(installation.store, index, lambda: installation.index_rules, 3)
    installation.take([shared(number, f"{number % 2}@x.example") for number in range(10)])
    installation.projection.sweep()
    index.given = 0
    installation.store.enqueue([f"user:{number}" for number in range(10)])
    installation.check_index()
    assert index.given == len(installation.persons()) == 2
    assert installation.store.outbox() == []


def test_a_hub_that_one_projection_knows_was_none_meanwhile() -> None:
    """Found by a reader: beside a flow re-encryption remembered a hub that an erasure had made none."""
    installation = Installation(HUB)
    slow = Projection(installation.store, installation.index, lambda: installation.index_rules)
    installation.take([shared(number) for number in range(1, 6)])
    installation.check_index()
    installation.store.enqueue(["user:5"])
    slow.project(["user:5"])
    gone = ["user:4", "user:5"]
    installation.store.erase(gone, NO_EPOCH)
    installation.projection.project(gone)
    installation.projection.forget_hub("email:info@shop.example")
    installation.projection.project(installation.store.find("email:info@shop.example"), has_lost=True)
    installation.store.finish(gone)
    installation.store.cancel(gone)
    installation.check_index()
    installation.take([shared(6), shared(7)])
    slow.project(["user:6", "user:7"])
    installation.check_index()


def test_one_that_comes_while_her_old_document_is_looked_for_keeps_the_new_one() -> None:
    """Found by a reader: another projection had put it, and this one erased it and settled her entry."""
    installation = Installation({"rules": {}})

    class Looked(MemoryProfileIndex):
        def versions(self, ids: Sequence[str]) -> dict[str, int]:
            if not installation.store.read(ids):
                installation.take([shared(1)])
                Projection(installation.store, self, lambda: installation.index_rules).sweep()
            return super().versions(ids)

    installation.index = Looked()
    installation.projection = Projection(
        installation.store, installation.index, lambda: installation.index_rules
    )
    installation.projection.project(["user:1"])
    installation.check_index()


def test_a_decision_beside_a_projection_is_projected() -> None:
    """Found by a reader: the projection settled the decision's entries with its own."""
    installation = Installation(HUB)
    installation.index = index = Interrupted()
    installation.projection = Projection(installation.store, index, lambda: installation.index_rules)
    pin = PinDocument.model_validate(
        {
            "pair": [["user", "1"], ["user", "2"]],
            "decision": "never",
            "t": "2026-03-05T09:00:00Z",
            "who": "jo",
        }
    )
    installation.take([shared(1, "a@x.example"), shared(2, "a@x.example")])
    index.meanwhile = lambda: installation.pin([pin])
    installation.projection.sweep()
    installation.check_index()
    assert len(installation.persons()) == 2


def test_an_assignment_beside_a_projection_is_projected() -> None:
    """A slower projection knew less of the person than the one that assigned its fragments and was killed then."""
    installation = Installation(HUB)
    installation.index = index = Interrupted()
    installation.projection = slower = Projection(installation.store, index, lambda: installation.index_rules)
    installation.take([shared(1, "a@x.example"), shared(2, "b@x.example")])

    def killed() -> None:
        installation.take([shared(1, "b@x.example")])
        faster = Failing()
        faster.is_away = True
        with pytest.raises(ProfileIndexError):
            Projection(installation.store, faster, lambda: installation.index_rules).sweep()

    index.meanwhile = killed
    slower.sweep()
    installation.check_index()
    assert list(installation.persons()) == ["user:1"]


class Failing(MemoryProfileIndex):
    """An index that is away for one erasure."""

    is_away = False

    def erase(self, versions: Mapping[str, int]) -> int:
        if self.is_away:
            self.is_away = False
            raise ProfileIndexError("away")
        return super().erase(versions)


def test_a_document_that_an_interrupted_merge_left_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by the end-to-end run on a slow machine: the entry of the absorbed fragment was settled with its profile."""
    monkeypatch.setattr("idgraph.projection.projection.COMMITTED_AT_ONCE", 1)
    installation = Installation(
        {"rules": {"namespaces": {"user": {"priority": 1}, "email": {"priority": 2}}}}
    )
    installation.index = index = Failing()
    installation.projection = Projection(installation.store, index, lambda: installation.index_rules, 1)
    installation.take([shared(1, "a@x.example"), shared(2, "b@x.example"), shared(3, "c@x.example")])
    installation.check_index()
    installation.take([shared(number, "d@x.example") for number in (3, 2, 1)])
    index.is_away = True
    with pytest.raises(ProfileIndexError):
        installation.projection.sweep()
    installation.check_index()
    assert len(installation.persons()) == 1


HUB: dict[str, Any] = {
    "name": "hub",
    "rules": {"namespaces": {"user": {"priority": 1}, "email": {"priority": 2}}, "hub_limit": 3},
}


def shared(number: int, email: str = "info@shop.example") -> IdentityEvent:
    """One person's event with an e-mail address that others use too."""
    return IdentityEvent.model_validate(
        {
            "id": f"{email} {number}",
            "t": f"2026-03-02T{number:02}:00:00Z",
            "source": "web",
            "ids": [["user", str(number)], ["email", email]],
        }
    )


def test_an_identifier_that_becomes_a_hub_lets_go_of_all_that_it_joined() -> None:
    installation = Installation(HUB)
    for number in range(3):
        installation.take([shared(number)])
        installation.check_index()
    assert len(installation.persons()) == 1
    for number in range(3, 8):
        installation.take([shared(number)])
        installation.check_index()
    assert {name: [str(i) for i in found] for name, found in installation.persons().items()} == {
        f"user:{number}": [f"user:{number}"] for number in range(8)
    }


def test_a_hub_crosses_its_limit_in_both_directions() -> None:
    events = [shared(number).model_dump(mode="json") for number in range(8)]
    undo = [
        {**each, "id": f"r-{each['id']}", "ids": (), "links": None, "retracts": each["id"]} for each in events
    ]
    installation = Installation({**HUB, "events": [*events, *undo]})
    sizes = []
    for some in (events[:3], events[3:6], undo[3:6], events[6:], undo[:3], undo[6:7]):
        installation.take(map(IdentityEvent.model_validate, some))
        installation.check_index()
        sizes.append(sorted(len(each) for each in installation.persons().values()))
    # Three and their address; a hub; three again; a hub; two and their address; one and it. Others are single.
    assert sizes == [[4], [1] * 6, [1, 1, 1, 4], [1] * 8, [1] * 6 + [3], [1] * 7 + [2]]


def test_a_hub_by_a_limit_that_was_raised_meanwhile_lets_go_again() -> None:
    """Found by a reader: its mark of before stayed, so that nothing was split."""
    events = [shared(number).model_dump(mode="json") for number in range(9)]
    undo = [{**each, "id": f"r-{each['id']}", "ids": (), "retracts": each["id"]} for each in events]
    for is_erased in (False, True):
        installation = Installation({**HUB, "events": [*events, *undo]})
        installation.take(map(IdentityEvent.model_validate, events[:6]))
        installation.check_index()
        follow(installation, {**HUB["rules"], "hub_limit": 50}, 1)
        assert len(installation.persons()) == 1
        if is_erased:
            gone = ["user:3", "user:4", "user:5"]
            erase(installation, *gone)
            for name in (*gone, "email:info@shop.example"):
                installation.projection.forget_hub(name)
            installation.projection.project(["user:0", "user:1", "user:2"], has_lost=True)
        else:
            installation.take(map(IdentityEvent.model_validate, undo[3:6]))
            installation.check_index()
        follow(installation, HUB["rules"], 2)
        installation.take(map(IdentityEvent.model_validate, events[6:]))
        installation.check_index()
        assert all(len(found) == 1 for found in installation.persons().values())


def test_without_the_key_nobody_can_test_a_guess_by_the_mark_of_a_hub(tmp_path: Path) -> None:
    installation = Installation(HUB)
    file = tmp_path / "profiles.db"
    with closing(
        SqliteProfileStore(file, lambda text: blake2b(text.encode(), key=b"secret").digest())
    ) as store:
        installation.store = store
        installation.projection = Projection(store, installation.index, lambda: installation.index_rules)
        installation.take(map(shared, range(5)))
        installation.check_index()
        (name,) = {name for each in store.ids() for name in store.identifiers(each)} - set(store.ids())
        assert len(store.find(name)) == 5
    with closing(sqlite3.connect(file)) as opened:
        (mark,) = opened.execute("SELECT mark FROM marks WHERE mark LIKE 'hub %'").fetchone()
    guesses = [algorithm(name.encode()).hexdigest() for algorithm in (sha256, blake2b)]
    assert not any(guess in mark for guess in guesses)


def test_a_hub_costs_the_same_however_many_it_joins() -> None:
    installation = Installation(HUB)
    installation.take(map(shared, range(20)))
    installation.check_index()
    read: list[int] = []
    through = installation.store.read

    def counted(ids: Sequence[str]) -> dict[str, Any]:
        read.append(len(ids))
        return through(ids)

    installation.store.read = counted  # type: ignore[method-assign]
    installation.take([shared(20)])
    installation.projection.sweep()
    assert sum(read) <= 3, "its own fragment, for the commit and for the projection"


def follow(installation: Installation, document: dict[str, Any], version: int) -> None:
    """New rules are in force, and the projection sweeps as it always does."""
    rules = IdentityRules.model_validate(document)
    installation.rules = Rules(rules)
    installation.index_rules = IndexRules(
        lambda _: True, identity=rules, identity_version=version, segments=SEGMENTS
    )
    installation.check_index()


@pytest.mark.parametrize(
    "case", [each for each in CASES if usable(each)][::4], ids=lambda case: str(case["name"])
)
def test_documents_follow_new_rules_and_old_ones_again(
    case: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # One page of three fragments in each pass.
    monkeypatch.setattr("idgraph.projection.projection.FOLLOW_SECONDS", -1)
    installation = Installation(case)
    installation.take(IdentityEvent.model_validate(each) for each in case["events"])
    installation.check_index()
    before = installation.persons()
    follow(installation, {"least_strength": 2}, 1)
    assert all(len(found) == 1 for found in installation.persons().values())
    # Another process, after a crash.
    installation.projection = Projection(
        installation.store, installation.index, lambda: installation.index_rules, 3
    )
    follow(installation, {}, 2)
    follow(installation, case["rules"], 3)
    assert installation.persons() == before


def test_two_flows_one_of_which_hears_of_new_rules_later() -> None:
    installation = Installation(HUB)
    installation.take([shared(1, "a@x.example"), shared(2, "a@x.example")])
    old = [installation.index_rules]
    late = Projection(installation.store, installation.index, lambda: old[0])
    late.sweep()
    follow(installation, {**HUB["rules"], "least_strength": 2}, 1)
    installation.take([shared(2, "a@x.example")])
    late.sweep()
    old[0] = installation.index_rules
    late.sweep()
    installation.check_index()
    assert len(installation.persons()) == 2


@pytest.mark.parametrize("version", [1, 3])
def test_a_process_with_older_rules_leaves_it_to_who_has_the_newer_ones(version: int) -> None:
    """Found by a reader: what it projected stayed, as all fragments were looked through before."""
    installation = Installation(HUB)
    installation.take([shared(1, "a@x.example"), shared(2, "a@x.example")])
    installation.check_index()
    old = [installation.index_rules]
    late = Projection(installation.store, installation.index, lambda: old[0])
    follow(installation, {**HUB["rules"], "least_strength": 2}, version)
    again = shared(2, "a@x.example").model_copy(update={"id": "later"})
    installation.take([again])
    assert late.project(["user:2"]).left() == late.sweep().left() == 1
    # Whoever erases cannot wait, and leaves entries.
    late.project(["user:1"], has_lost=True)
    assert {each.fragment_id for each in installation.store.outbox()} == {"user:1", "user:2"}
    old[0] = installation.index_rules
    assert late.sweep().left() == 0
    installation.check_index()
    assert len(installation.persons()) == 2


def test_rules_of_a_new_metadata_database_count_once_that_is_said() -> None:
    installation = Installation(HUB)
    installation.take([shared(1, "a@x.example"), shared(2, "a@x.example")])
    first = installation.index_rules
    follow(installation, {**HUB["rules"], "least_strength": 2}, 3)
    late = Projection(installation.store, installation.index, lambda: first)
    installation.take([shared(3, "a@x.example")])
    assert late.sweep().left() > 0
    late.count_as_newest()
    installation.store.enqueue([f"user:{number}" for number in (1, 2, 3)])
    installation.index_rules, installation.rules = first, Rules(first.identity)
    assert late.sweep().left() == 0
    installation.check_index()
    # The next edit is a newer one again.
    follow(installation, {**HUB["rules"], "least_strength": 2}, 1)


def test_new_rules_that_are_followed_in_the_middle_of_a_projection_by_older_ones_win() -> None:
    installation = Installation(HUB)
    store, assign, old = installation.store, installation.store.assign, installation.index_rules
    installation.take([shared(1, "a@x.example"), shared(2, "a@x.example")])

    def overtaken(assignments: Sequence[Assignment]) -> set[str]:
        store.assign = assign  # type: ignore[method-assign]
        follow(installation, {**HUB["rules"], "least_strength": 2}, 1)
        return assign(assignments)

    store.assign = overtaken  # type: ignore[method-assign]
    Projection(store, installation.index, lambda: old).sweep()
    installation.check_index()
    assert len(installation.persons()) == 2


def test_rules_that_are_followed_are_not_looked_for_again() -> None:
    installation = Installation(HUB)
    installation.take(map(shared, range(3)))
    follow(installation, HUB["rules"], 1)
    read: list[str] = []
    through = installation.store.ids

    def counted() -> Any:
        read.append("all")
        return through()

    installation.store.ids = counted  # type: ignore[method-assign]
    for projection in (
        installation.projection,
        Projection(installation.store, installation.index, lambda: installation.index_rules),
    ):
        projection.sweep()
    assert read == []


def test_a_pin_holds_for_the_form_in_which_it_was_made_and_for_that_of_today(tmp_path: Path) -> None:
    """Found by a reader: the same event again, under another `normalise`, joined what a pin keeps apart."""
    plain: dict[str, Any] = {"namespaces": {"user": {"priority": 1}, "email": {"priority": 2}}}
    lower = {"namespaces": {**plain["namespaces"], "email": {"priority": 2, "normalise": "email"}}}
    event, other = shared(1, "Ann@x.example"), shared(2, "ann@x.example")
    ends = [Identifier("user", "1"), Identifier("email", "Ann@x.example")]
    installation = Installation({"rules": plain})

    def decide(version: int, decision: Decision) -> None:
        rules = installation.index_rules.identity
        snapshot = MetadataSnapshot(version=version, identity_rules=rules, identity_rules_version=version)
        here = Pipeline(tmp_path, store=installation.store, index=installation.index, snapshot=snapshot)
        links = Links(installation.store, here.reader())
        one, two = map(links.stored, ends)
        assert one is not None
        assert two is not None
        links.keep(links.decide([(one, two, decision)], version, "jo", ""))
        installation.check_index()

    installation.take([event])
    decide(0, Decision.NEVER)
    follow(installation, lower, 1)
    installation.take([event, other])
    installation.check_index()
    assert [Identifier("user", "1")] in installation.persons().values()
    decide(1, Decision.NONE)
    (person,) = installation.persons().values()
    assert set(ends) < set(person)


def test_segments_that_are_new_or_changed_are_evaluated_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    # One page of three fragments in each pass.
    monkeypatch.setattr("idgraph.projection.projection.FOLLOW_SECONDS", -1)
    installation = Installation(HUB)
    plain, installation.index_rules = installation.index_rules, installation.index_rules._replace(segments=())
    installation.take(shared(number, f"{number // 2}@x.example") for number in range(10))
    installation.check_index()
    assert not any(isinstance(each, Crossing) for each in installation.store.ledger())
    installation.index_rules = plain
    installation.check_index()
    assert sum(isinstance(each, Crossing) for each in installation.store.ledger()) > 0
    other = segment("web alone", Not(Exists("seen.web")), version=2)
    installation.index_rules = plain._replace(segments=(*SEGMENTS[:2], other))
    # Another process, which knows nothing of the segments before.
    installation.projection = Projection(
        installation.store, installation.index, lambda: installation.index_rules, 3
    )
    installation.check_index()
    before = len(installation.store.ledger())
    installation.projection.sweep()
    assert len(installation.store.ledger()) == before


def test_a_look_through_all_profiles_says_nothing_of_what_has_not_joined() -> None:
    """Found by a reader: a link that was undone before it was projected left a later version in the feed than documents had,
    and the profile's next changes were left out."""
    installation = Installation({"rules": {"namespaces": {"user_id": {"unique": True}, "email": {}}}})
    installation.index_rules = installation.index_rules._replace(segments=())

    def take(number: int, *ids: list[str]) -> None:
        event = {"id": f"{number}", "t": f"2026-03-01T09:00:{number:02d}Z", "source": "web", "ids": ids}
        installation.take([IdentityEvent.model_validate(event)])

    user, email = ["user_id", "1"], ["email", "e@x.org"]
    take(0, user)
    for number in range(1, 30):
        take(number, email)
    installation.projection.sweep()
    installation.index_rules = installation.index_rules._replace(segments=SEGMENTS)
    take(40, user, email)
    installation.projection._follow_segments()
    pin = {"pair": [user, email], "decision": "never", "who": "w", "why": "y", "t": "2026-03-01T09:00:50Z"}
    installation.pin([PinDocument.model_validate(pin)])
    for number in range(51, 54):
        take(number, user)
        installation.check_index()


def test_who_is_erased_while_a_segment_is_out_of_force_leaves_it() -> None:
    installation = Installation(HUB)
    plain = installation.index_rules
    installation.take([shared(1, "a@x.example"), shared(2, "b@x.example")])
    installation.check_index()
    installation.index_rules = plain._replace(segments=())
    installation.projection.sweep()
    erase(installation, "user:2")
    installation.index_rules = plain
    installation.check_index()


@pytest.mark.parametrize("is_erased", [False, True])
def test_a_slower_projection_does_not_undo_what_a_faster_one_found(is_erased: bool) -> None:
    installation = Installation(HUB)
    store, slow = installation.store, installation.store.cross
    installation.take([shared(1, "a@x.example")])

    def overtaken(crossings: Sequence[Crossing]) -> None:
        store.cross = slow  # type: ignore[method-assign]
        faster = Projection(store, installation.index, lambda: installation.index_rules)
        installation.projection = faster
        if is_erased:
            erase(installation, "user:1")
        else:
            installation.take([shared(1, "a@x.example").model_copy(update={"id": "2", "source": "crm"})])
        faster.project(["user:1"])
        slow(crossings)

    store.cross = overtaken  # type: ignore[method-assign]
    installation.projection.sweep()
    installation.check_index()
    assert store.outbox() == []


def test_a_projection_that_is_killed_before_it_notes_crossings_notes_each_once() -> None:
    installation = Installation(HUB)
    store, cross = installation.store, installation.store.cross
    installation.take([shared(1, "a@x.example"), shared(2, "a@x.example")])

    def killed(crossings: Sequence[Crossing]) -> None:
        store.cross = cross  # type: ignore[method-assign]
        cross(crossings[:1])
        raise StoreError("killed")

    store.cross = killed  # type: ignore[method-assign]
    with pytest.raises(StoreError):
        installation.projection.sweep()
    installation.projection = Projection(store, installation.index, lambda: installation.index_rules)
    installation.check_index()
    assert any(isinstance(each, Crossing) for each in store.ledger())


def test_the_newest_sighting_in_several_fragments_is_so_by_its_stamp() -> None:
    """Found by the machine of law 1: the priority of the spec counted within a fragment alone."""
    rules = {"namespaces": {"user": {"unique": True}, "device": {"moves": "latest"}, "cart": {}}}
    installation = Installation({"rules": rules})
    shows = [
        (("user:1", "device:d", "cart:c"), 1, 1),
        (("cart:c", "user:1", "device:d"), 0, 9),
        (("user:2", "device:d"), 0, 5),
    ]
    for identifiers, priority, ordinal in shows:
        parsed = tuple(map(Identifier.parse, identifiers))
        origin = Origin(Stamp(priority, ordinal, "web", str(ordinal)), SpecRef("s", 1))
        change = FragmentChange(identifiers[0], origin, {}, parsed)
        state = FragmentState()
        state.apply(change)
        Committer(installation.store).commit({identifiers[0]: state})
    # By time alone user 1 was seen last; the event of the better spec is the newest of hers, and has an older time.
    assert Identifier("device", "d") in installation.persons()["user:2"]
