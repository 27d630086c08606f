"""Law 1 beside a policy change: events, then protection, then the sealing of what is stored, in whatever order and
with whatever arrives late, give byte for byte what the same events give under the policy from the start."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from idgraph.model.attributes import AttributeMetadata
from idgraph.model.backoff import Backoff
from idgraph.model.classification import EncryptionLevel
from idgraph.model.errors import ConflictError
from idgraph.model.events import RawRecord
from idgraph.model.fragments import Kind
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot
from ingestion.stages.map_output import MapOutput
from ingestion.stages.orphaned_keys import KeyGuard
from merge.commit import Committer
from merge.documents import document
from merge.fragments import FragmentState
from tests.folders import in_memory
from tests.lanes import examples
from tests.retail import UNDETECTED, Pipeline, attribute, attributes, order, records, snapshot
from tests.sealing import sealed
from tests.support.memory.data_keys import MemoryDataKeys
from transforms.spec.mapping import CompiledSnapshot

pytestmark = pytest.mark.long


EVENTS = records(60)
ARRAYS = [
    order(number, line, order_id=f"R{line}", shipping={"city": cities, "country": cities})
    for number, line, cities in [
        (1, 101, ["Rome", "Oslo", None, "Rome"]),
        (1, 102, "Oslo"),
        (1, 103, [["Ulm"], {"in": "Ulm"}, 7, 7.5]),
        (1, 104, [["Ulm"], {"in": "Ulm"}, True]),
        (2, 105, ["oslo", [], {"in": "Ulm"}]),
        (1, 106, ["oslo", "Oslo", []]),
    ]
]
KEYS = MemoryDataKeys()
SHIPPING = attribute("address.shipping", encryption="searchable")
"""Above paths that events write: what nobody declared below it inherits."""
CLOSED: dict[str, list[AttributeMetadata]] = {
    "as the example": attributes(),
    "and others": [
        *(
            each
            for each in attributes()
            if each.path not in ("activity.lastSeenAt", "address.shipping.line1")
        ),
        attribute("activity.lastSeenAt", "integer", encryption="searchable"),
        attribute("activity.lastEvent", encryption="protected"),
        attribute("activity.purchase.total", "number", encryption="searchable"),
        SHIPPING,
    ],
    "and other reconciliation": [
        *(each for each in attributes() if each.path != "activity.lastSeenAt"),
        attribute("activity.lastSeenAt", "integer", encryption="protected", policy="first"),
        attribute("activity.lastEvent", encryption="searchable", policy="union"),
        attribute("address.shipping.city", encryption="searchable", policy="union"),
        attribute("address.shipping.country", encryption="protected", policy="append"),
        attribute("activity.platform", encryption="protected", policy="append"),
        attribute("activity.purchase.total", "number", encryption="protected", policy="count"),
        attribute("demographics.age", "integer", encryption="protected", policy="source_priority"),
    ],
}
NAMES = "and names"
CLOSED[NAMES] = [
    *CLOSED["as the example"],
    attribute("identity.anonymousId", encryption="protected"),
    attribute("identity.deviceId", encryption="protected"),
]
"""All but the shop's own numbers: fragments of those keep their ids, and change what else they are found by."""


@cache
def folder() -> tempfile.TemporaryDirectory[str]:
    """One keyring and one set of data keys for all runs: other keys seal to other bytes."""
    return in_memory()


def running(known: MetadataSnapshot) -> Pipeline:
    return Pipeline(Path(folder().name), KEYS, snapshot=known)


def opened(
    known: list[AttributeMetadata], defaults: DiscoveryDefaults | None, named: bool = True
) -> MetadataSnapshot:
    """Before the change: nothing is protected or, if `named`, only what names fragments, so that these keep their
    names."""
    stated = [
        each
        if named and each.path == "identity.email"
        else each.model_copy(update={"encryption": EncryptionLevel.NONE, "indexable": True})
        for each in known
    ]
    return snapshot(1, declared=stated, defaults=defaults)


def state(pipeline: Pipeline) -> dict[str, bytes]:
    return {each.id: each.state for each in pipeline.store.scan(limit=10_000)}


def fields(pipeline: Pipeline) -> dict[str, object]:
    """What the index was given of each profile."""
    rules = CompiledSnapshot(pipeline.snapshot).attributes.index_rules
    return {
        each.id: document(each.id, 1, FragmentState.decode(each.state), rules)
        for each in pipeline.store.scan(limit=10_000)
    }


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[RawRecord], list[str]]:
    """Events in some order, some twice, each with what is done with it: mapped before or after the change, or
    mapped before it and written after the first sealing; the sealing comes somewhere in between."""
    known = draw(st.sampled_from([EVENTS, EVENTS, ARRAYS]))
    chosen = draw(st.lists(st.sampled_from(known), min_size=1, max_size=25))
    ways = draw(st.lists(st.sampled_from(["old", "late", "new"]), min_size=len(chosen), max_size=len(chosen)))
    return chosen, ways


def given_late(pipeline: Pipeline, before: MetadataSnapshot, event: RawRecord, output: MapOutput) -> None:
    """Write what was mapped before the change; where a detector had a value sealed under a key that went with its
    fragment's old name, the batch is retried, as a flow does."""
    stage = pipeline.commit_stage()
    stage.committer = Committer(
        pipeline.store, Backoff(1, 0.0), guard=KeyGuard(pipeline.store, pipeline.data_keys).hold
    )
    try:
        stage.run(output.encoded())
    except ConflictError:
        Pipeline(pipeline.folder, KEYS, pipeline.store, pipeline.index, snapshot=before).process([event])


@settings(max_examples=examples(60), deadline=None)
@given(histories(), st.sampled_from(sorted(CLOSED)), st.booleans(), st.integers(1, 7))
def test_when_protection_came_does_not_show(
    history: tuple[list[RawRecord], list[str]], policy: str, detects: bool, page: int
) -> None:
    before = opened(CLOSED[policy], None if detects else UNDETECTED, named=policy != NAMES)
    after = snapshot(2, declared=CLOSED[policy])
    expected = running(after)
    pipeline = running(before)
    late: list[tuple[RawRecord, MapOutput]] = []
    events, ways = history
    expected.process(events)
    for event, way in zip(events, ways, strict=True):
        if way == "late":
            late.append((event, pipeline.map(event)))
        elif way == "old":
            pipeline.process([event])
    pipeline.snapshot = after
    sealed(pipeline, page)
    pipeline.process([event for event, way in zip(events, ways, strict=True) if way == "new"])
    for event, output in late:
        given_late(pipeline, before, event, output)
    sealed(pipeline, page)

    assert state(pipeline) == state(expected)
    assert pipeline.export(reveal=True) == expected.export(reveal=True)
    assert fields(pipeline) == fields(expected)
    assert sealed(pipeline, page).values.total() == 0, "sealing twice is sealing once"


@pytest.mark.parametrize("detects", [True, False])
def test_elements_of_an_array_are_sealed_one_by_one_whenever_protection_came(detects: bool) -> None:
    known = CLOSED["and other reconciliation"]
    before = opened(known, None if detects else UNDETECTED)
    after = snapshot(2, declared=known)
    expected, pipeline = running(after), running(before)
    expected.process(ARRAYS)
    pipeline.process(ARRAYS)
    pipeline.snapshot = after
    sealed(pipeline)
    assert state(pipeline) == state(expected)
    pipeline.process(ARRAYS)
    assert state(pipeline) == state(expected)
    assert fields(pipeline) == fields(expected)
    profiles = [each.attributes() for each in pipeline.reader().scan(reveal=True)]
    # One token in two forms, of one event: either may show.
    assert any(
        each["address"]["shipping"]["city"] == [True, 7, 7.5, *names, ["Ulm"], [], {"in": "Ulm"}]
        for each in profiles
        for names in (["Oslo", "Rome"], ["Rome", "oslo"])
    )


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.sampled_from(EVENTS), min_size=1, max_size=25))
def test_a_replay_under_the_old_policy_uncovers_nothing(events: list[RawRecord]) -> None:
    known = CLOSED["and others"]
    pipeline = running(opened(known, UNDETECTED))
    again = [output for event in events for output in pipeline.map_stage().run([event])]
    pipeline.process(events)
    pipeline.snapshot = snapshot(2, declared=known)
    sealed(pipeline)
    before = state(pipeline)
    for output in again:
        pipeline.commit_stage().run(output.encoded())
    assert state(pipeline) == before


def test_what_is_searchable_now_gets_its_token_and_what_is_not_loses_it() -> None:
    path = "activity.lastSeenAt"

    def under(version: int, encryption: str) -> MetadataSnapshot:
        rest = [each for each in attributes() if each.path != path]
        return snapshot(version, declared=[*rest, attribute(path, "integer", encryption=encryption)])

    searchable, protected = running(under(1, "searchable")), running(under(1, "protected"))
    searchable.process(EVENTS)
    protected.process(EVENTS)
    with_tokens, without = state(searchable), state(protected)
    assert with_tokens != without
    protected.snapshot = under(2, "searchable")
    assert set(sealed(protected).values) == {path}
    assert state(protected) == with_tokens
    protected.snapshot = under(3, "protected")
    sealed(protected)
    assert state(protected) == without


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (("integer", "active"), ("string", "active")),
        (("string", "active"), ("integer", "active")),
        (("string", "discovered"), ("string", "active")),
    ],
)
def test_another_declared_type_makes_other_tokens(before: tuple[str, str], after: tuple[str, str]) -> None:
    path = "activity.lastSeenAt"

    def under(version: int, data_type: str, status: str) -> MetadataSnapshot:
        rest = [each for each in attributes() if each.path != path]
        stated = attribute(path, data_type, encryption="searchable", status=status)
        return snapshot(version, declared=[*rest, stated])

    pipeline, expected = running(under(1, *before)), running(under(2, *after))
    pipeline.process(EVENTS)
    expected.process(EVENTS)
    assert state(pipeline) != state(expected)
    pipeline.snapshot = expected.snapshot
    assert set(sealed(pipeline).values) == {path}
    assert state(pipeline) == state(expected)
    assert fields(pipeline) == fields(expected)
    assert sealed(pipeline).values.total() == 0


def test_what_is_opened_again_stays_sealed() -> None:
    pipeline = running(snapshot(1, declared=CLOSED["and others"]))
    pipeline.process(EVENTS)
    before = state(pipeline)
    pipeline.snapshot = opened(CLOSED["and others"], None)
    assert sealed(pipeline).values.total() == 0
    assert state(pipeline) == before
    kinds = [r.kind for each in before.values() for r in FragmentState.decode(each).registers.values()]
    assert Kind.SEALED in kinds


def test_what_another_policy_kept_in_the_clear_does_not_outlive_protection() -> None:
    """An attribute of policy `max` cannot be protected as it is: what `max` kept cannot be sealed and goes."""
    path = "activity.lastSeenAt"
    rest = [each for each in attributes() if each.path != path]
    open_ = snapshot(1, declared=[*rest, attribute(path, "integer", policy="max")])
    closed = snapshot(2, declared=[*rest, attribute(path, "integer", encryption="protected")])
    pipeline, expected = running(open_), running(closed)
    pipeline.process(EVENTS)
    expected.process(EVENTS)
    assert any(FragmentState.decode(each).cells for each in state(pipeline).values())
    pipeline.snapshot = closed
    sealed(pipeline)
    assert state(pipeline) == state(expected)
