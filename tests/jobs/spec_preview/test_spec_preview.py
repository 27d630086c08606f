"""Persons in the preview of a spec: where every event is looked at, they are those of two stores, filled by either version."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from idgraph.jobs.spec_preview.effect import share_error
from idgraph.jobs.spec_preview.persons import EventPair, compare_persons
from idgraph.jobs.spec_preview.tried import TriedSnapshot
from idgraph.model.events import RawRecord
from idgraph.model.identity_rules import DEFAULT_RULES
from idgraph.model.snapshots import MetadataSnapshot
from ingestion.sources.payload_formats import PayloadFormats
from merge.identity.rules import Rules
from tests.jobs.test_rules_preview import owners
from tests.retail import NOW, SOURCES, Pipeline, persons_of, records, snapshot, spec
from tests.support.memory.profiles import MemoryProfileStore

RECORDS = records(160)
SPEC = "segment"
PLACES = {each.type: each.model_dump() for each in spec(SPEC).identifiers}
RENAMED = [
    PLACES["anonymous_id"] | {"primary": True, "fallback": False},
    PLACES["user_id"] | {"primary": False},
    PLACES["email"],
]
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "without e-mail": {"identifiers": [PLACES["user_id"], PLACES["anonymous_id"]]},
    "user alone": {"identifiers": [PLACES["user_id"]]},
    "named by another": {"identifiers": RENAMED},
    "device as a link": {"identifiers": [*PLACES.values(), {"type": "device", "path": "device.model"}]},
    "fewer links": {"evidence": {"links": [["user_id", "anonymous_id"]]}},
}


def tried(folder: Path, known: MetadataSnapshot) -> tuple[Pipeline, TriedSnapshot]:
    pipeline = Pipeline(folder, snapshot=known)
    parts = pipeline.data_keys, pipeline.blind_index, PayloadFormats(), int(NOW * 1000)
    return pipeline, TriedSnapshot(known, SOURCES, *parts)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("as it is", "without e-mail"),
        ("user alone", "as it is"),
        ("as it is", "named by another"),
        ("fewer links", "device as a link"),
        ("named by another", "user alone"),
    ],
)
def test_persons_are_those_of_the_events_by_either_version(before: str, after: str, tmp_path: Path) -> None:
    others = [spec(each) for each in SOURCES if each != SPEC]
    known = [snapshot(specs=[*others, spec(SPEC, **VARIANTS[each])]) for each in (before, after)]
    (old, old_side), (new, new_side) = (tried(tmp_path, each) for each in known)
    for pipeline in (old, new):
        pipeline.process(RECORDS)
    mapped = [(old_side.outcome(each).event, new_side.outcome(each).event, each) for each in RECORDS]
    sampled = [EventPair(one, other) for one, other, record in mapped if record.source == SPEC]
    found = compare_persons(old.store, Rules(DEFAULT_RULES), (str, str), sampled)
    sides = [owners(persons_of(each.store)) for each in (old, new)]
    units = [
        (sides[0][one.fragment_id], sides[1][other.fragment_id])
        for one, other, _ in mapped
        if one is not None and other is not None
    ]
    assert found.merged or found.split or after == "named by another"
    assert found.merged == sum(len({a for a, b in units if b == each}) > 1 for each in {b for _, b in units})
    assert found.split == sum(len({b for a, b in units if a == each}) > 1 for each in {a for a, _ in units})


def test_a_store_that_read_nothing_yet_is_as_one_that_did(tmp_path: Path) -> None:
    known = snapshot(), snapshot(specs=[spec(SPEC, **VARIANTS["user alone"])])
    (pipeline, one), (_, other) = (tried(tmp_path, each) for each in known)
    pipeline.process(RECORDS)
    mine: list[RawRecord] = [each for each in RECORDS if each.source == SPEC]
    pairs = [EventPair(one.outcome(each).event, other.outcome(each).event) for each in mine]
    rules = Rules(DEFAULT_RULES)
    empty = compare_persons(MemoryProfileStore(), rules, (str, str), pairs)
    only = Pipeline(tmp_path)
    only.process(mine)
    assert empty == compare_persons(only.store, rules, (str, str), pairs)


def test_of_a_new_source_it_says_how_many_persons_are_known_and_by_what(tmp_path: Path) -> None:
    others = [spec(each) for each in SOURCES if each != SPEC]
    (old, old_side), (new, new_side) = (
        tried(tmp_path, snapshot(specs=each)) for each in (others, [*others, spec(SPEC)])
    )
    old.process([each for each in RECORDS if each.source != SPEC])
    new.process(RECORDS)
    mine = [each for each in RECORDS if each.source == SPEC]
    pairs = [EventPair(old_side.outcome(each).event, new_side.outcome(each).event) for each in mine]
    found = compare_persons(old.store, Rules(DEFAULT_RULES), (str, str), pairs).known
    assert found is not None
    shown: dict[str, set[str]] = {}
    for _, event in pairs:
        if event is not None:
            shown.setdefault(event.fragment_id, set()).update(map(str, event.identifiers))
    stored = {
        each.stored.id: {each.stored.id, *each.state.carried()}
        for person in persons_of(old.store)
        for each in person.members
    }
    known, whole = 0, 0
    by: dict[str, int] = {}
    for person in persons_of(new.store):
        names = {each.stored.id for each in person.members}
        own = set[str]().union(*(shown.get(each, set()) for each in names))
        whole += bool(own)
        common = own & set[str]().union(*(stored.get(each, set()) for each in names))
        known += bool(common)
        for kind in {each.partition(":")[0] for each in common}:
            by[kind] = by.get(kind, 0) + 1
    assert 0 < known < whole
    assert (found.persons, found.known, found.by) == (whole, known, by)
    # Of events that are mapped today it says nothing.
    again = [EventPair(each.after, each.after) for each in pairs]
    assert compare_persons(new.store, Rules(DEFAULT_RULES), (str, str), again).known is None


def test_the_error_of_a_share() -> None:
    assert share_error(5, 100, 100) == share_error(0, 0, None) == 0.0
    assert share_error(0, 2000, None) == pytest.approx(0.0015)
    assert share_error(1000, 2000, None) == pytest.approx(1.96 * (0.25 / 2000) ** 0.5)
    assert share_error(1000, 2000, 4000) < share_error(1000, 2000, None)
