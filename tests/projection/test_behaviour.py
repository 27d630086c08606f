"""Events leave entries in timelines; what is derived from these shows in look-ups, exports and searches."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from idgraph.model.behaviour import ActivityDocument, DerivedDocument
from idgraph.model.identifiers import Identifier
from idgraph.model.index import IndexRules
from idgraph.model.ledger import Crossing
from idgraph.model.queries import Condition, Exists, Query, Range, Term, to_json
from idgraph.model.query_language import parse_query
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.sources import FlowConfig
from idgraph.model.store import OutboxEntry
from idgraph.model.timelines import DAY_MS, DueEntry
from idgraph.model.views import SegmentDocument
from idgraph.projection.parts import Work
from idgraph.projection.projection import Projection
from tests.retail import NOW, SOURCES, Pipeline, attribute, order, snapshot
from transforms.schema.diff import AttributeTree

NOW_MS = int(NOW * 1000)
ORDER = ActivityDocument(
    name="order",
    source="orders",
    fields={"total": "orders.last.total", "city": "address.shipping.city"},
    version=1,
)
PERSON = Identifier("email", "p1@example.com")


def derived(path: str, version: int = 1, **content: Any) -> DerivedDocument:
    return DerivedDocument(name=path.replace(".", "-"), path=path, version=version, **content)


COUNT = derived("behaviour.orders30d", window={"activity": "order", "function": "count", "over": "30d"})
SUM = derived(
    "behaviour.revenue", window={"activity": "order", "function": "sum", "field": "total", "over": "all"}
)
SESSIONS = derived("behaviour.sessions", sessions={"activity": "order", "gap": "30m"})


def with_behaviour(
    activities: Sequence[ActivityDocument] = (ORDER,),
    definitions: Sequence[DerivedDocument] = (COUNT, SUM, SESSIONS),
    version: int = 1,
) -> MetadataSnapshot:
    return snapshot(version).model_copy(
        update={
            "activities": tuple(activities),
            "derived_attributes": tuple(definitions),
            "behaviour_version": version,
        }
    )


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    return Pipeline(tmp_path, snapshot=with_behaviour())


def at(days_ago: float) -> str:
    return datetime.fromtimestamp(NOW - days_ago * 86400, UTC).isoformat().replace("+00:00", "Z")


ORDERS = [
    order(1, 1, order_id="A", created_at=at(40), cart={"total": "10.10", "items": 1}),
    order(1, 2, order_id="B", created_at=at(20), cart={"total": "0.20", "items": 1}),
    order(1, 3, order_id="C", created_at=at(2), cart={"total": "5", "items": 1}),
]


def looked_up(pipeline: Pipeline, now_ms: int = NOW_MS) -> dict[str, Any]:
    reader = pipeline.reader()
    reader.now_ms = lambda: now_ms
    (profile,) = reader.lookup(PERSON)
    found: dict[str, Any] = profile.attributes().get("behaviour", {})
    return found


def projected(pipeline: Pipeline, now_ms: int = NOW_MS) -> None:
    Projection(pipeline.store, pipeline.index, pipeline.rules, now_ms=lambda: now_ms).sweep()


def own(pipeline: Pipeline) -> str:
    (fragment,) = pipeline.store.ids()
    return fragment


def found(pipeline: Pipeline, number: int) -> list[str]:
    return pipeline.index.search(Query((Term("behaviour.orders30d", number),))).ids


def test_a_look_up_derives_as_of_now(pipeline: Pipeline) -> None:
    pipeline.process(ORDERS)
    shown = looked_up(pipeline)
    assert (shown["orders30d"], shown["revenue"]) == (2, 15.3)
    assert shown["sessions"]["count"] == 2
    assert looked_up(pipeline, NOW_MS + 15 * DAY_MS)["orders30d"] == 1
    assert looked_up(pipeline, NOW_MS - 25 * DAY_MS)["orders30d"] == 1


def test_a_window_is_complete_from_when_its_activity_left_entries(tmp_path: Path) -> None:
    activity = ActivityDocument.model_validate(ORDER.model_dump() | {"since": at(31)})
    pipeline = Pipeline(tmp_path, snapshot=with_behaviour([activity], [COUNT]))
    pipeline.process(ORDERS)
    reader = pipeline.reader()

    def is_complete(now_ms: int) -> Any:
        (profile,) = reader.as_of(now_ms).lookup(PERSON)
        return profile.canonical(provenance=True)["provenance"][COUNT.path]["complete"]

    assert not is_complete(NOW_MS - DAY_MS - 1)
    assert is_complete(NOW_MS - DAY_MS)


def test_the_time_of_an_activity_has_the_protection_and_the_level_of_its_attribute(tmp_path: Path) -> None:
    activity = ORDER.model_copy(update={"time": "orders.last.items"})
    known = with_behaviour([activity], [SESSIONS])
    when = NOW_MS - DAY_MS - 123
    given = [order(1, 1, order_id="A", created_at=at(1), cart={"total": "1", "items": when})]

    def as_declared(**policy: Any) -> Pipeline:
        declared = attribute("orders.last.items", "number", **policy)
        others = (each for each in known.attributes if each.path != declared.path)
        attributes = (*others, declared)
        pipeline = Pipeline(tmp_path, snapshot=known.model_copy(update={"attributes": attributes}))
        pipeline.process(given)
        return pipeline

    assert looked_up(as_declared())["sessions"]["last"]["begin"] == when
    pipeline = as_declared(encryption="protected")
    assert pipeline.store.timelines([own(pipeline)]) == {}
    pipeline = as_declared(authorization_level=50)
    assert pipeline.store.timelines([own(pipeline)])
    (person,) = pipeline.reader().owners(PERSON).persons
    shown = {each: pipeline.reader().with_clearance(each) for each in (49, 50)}
    assert {each: "behaviour" in shown[each].profile_of(person).attributes() for each in shown} == {
        49: False,
        50: True,
    }
    assert {each: list(shown[each].activities()) for each in shown} == {49: [], 50: ["order"]}


@pytest.mark.parametrize(
    ("unit", "time", "count"),
    [
        ("epoch_ms", None, 1),
        ("sequence", None, 0),
        ("epoch_ms", "orders.at", 0),
        ("sequence", "orders.last.at", 1),
    ],
)
def test_an_event_without_a_time_leaves_no_entry_and_keeps_its_attributes(
    tmp_path: Path, unit: str, time: str | None, count: int
) -> None:
    sources = {**SOURCES, "orders": SOURCES["orders"].model_copy(update={"ordinal_unit": unit})}
    every = ActivityDocument(name="order", time=time, version=1)
    pipeline = Pipeline(tmp_path, snapshot=with_behaviour([every], [COUNT]), sources=sources)
    pipeline.process(ORDERS[2:])
    assert looked_up(pipeline) == {"orders30d": count}


def test_an_entry_has_the_values_for_which_it_has_room(tmp_path: Path) -> None:
    fields = {"total": "orders.last.total", "line": "address.shipping.line1"}
    every = ActivityDocument(name="order", source="orders", fields=fields, version=1)
    pipeline = Pipeline(tmp_path, snapshot=with_behaviour([every]))
    shipping = {"line1": "x" * 9000, "city": "S", "country": "US"}
    given = order(1, 1, order_id="A", created_at=at(1), cart={"total": "5", "items": 1}, shipping=shipping)
    pipeline.process([given])
    (person,) = pipeline.reader().owners(PERSON).persons
    *_, timelines = pipeline.reader().timelines(person, ["order"])
    assert [each.fields for each in timelines["order"]] == [{"total": 5}]


@pytest.mark.parametrize("ahead", [0, 1])
def test_a_time_beyond_the_allowed_skew_is_a_dead_letter_and_drops_no_other(
    tmp_path: Path, ahead: int
) -> None:
    activity = ORDER.model_copy(update={"time": "orders.last.items"})
    pipeline = Pipeline(
        tmp_path, snapshot=with_behaviour([activity]), flow=FlowConfig(max_future_skew_seconds=60)
    )

    def ordered(line: int, time: int) -> list[str]:
        given = order(1, line, order_id=f"L{line}", created_at=at(1), cart={"total": "1", "items": time})
        pipeline.process([given])
        return [each.reason for each in pipeline.map(given).dead_letters]

    assert ordered(1, NOW_MS - DAY_MS) == []
    before = looked_up(pipeline)
    assert ordered(2, NOW_MS + 60_000 + ahead) == ["future_ordinal"] * ahead
    assert ordered(3, 4_102_444_800_000) == ["future_ordinal"]
    assert looked_up(pipeline) == before
    assert looked_up(pipeline, NOW_MS + 60_001)["orders30d"] == 2 - ahead


def test_order_and_duplicates_do_not_matter(tmp_path: Path) -> None:
    results = []
    for given in (ORDERS, [*reversed(ORDERS), *ORDERS]):
        pipeline = Pipeline(tmp_path, snapshot=with_behaviour())
        for each in given:
            pipeline.process([each])
        stored = pipeline.store.timelines([own(pipeline)], ["order"])
        results.append((stored, looked_up(pipeline)))
    assert results[0] == results[1]
    assert len(next(iter(results[0][0].values()))) == 3


def test_the_index_follows_by_due_entries(pipeline: Pipeline) -> None:
    outputs = list(pipeline.map_stage().run(ORDERS))
    pipeline.commit_stage().run(each for output in outputs for each in output.encoded())
    projected(pipeline)
    assert found(pipeline, 2) == [own(pipeline)]
    projected(pipeline, NOW_MS + 5 * DAY_MS)
    assert found(pipeline, 2) == [own(pipeline)]
    projected(pipeline, NOW_MS + 12 * DAY_MS)
    assert (found(pipeline, 2), found(pipeline, 1)) == ([], [own(pipeline)])
    projected(pipeline, NOW_MS + 60 * DAY_MS)
    assert found(pipeline, 0) == [own(pipeline)]
    assert pipeline.store.take_due(NOW_MS + 10_000 * DAY_MS, 10) == 0


def test_changed_definitions_reach_the_index_and_back(pipeline: Pipeline) -> None:
    pipeline.process(ORDERS)
    projected(pipeline)
    longer = derived(
        "behaviour.orders30d", 2, window={"activity": "order", "function": "count", "over": "90d"}
    )
    pipeline.snapshot = with_behaviour(definitions=(longer,), version=2)
    projected(pipeline)
    assert found(pipeline, 3) == [own(pipeline)]
    assert pipeline.index.search(Query((Range("behaviour.revenue", lower=0),))).ids == []
    pipeline.snapshot = with_behaviour(definitions=(), version=3)
    projected(pipeline)
    assert found(pipeline, 3) == []
    assert looked_up(pipeline) == {}
    pipeline.snapshot = with_behaviour(version=4)
    projected(pipeline)
    assert found(pipeline, 2) == [own(pipeline)]


def test_protected_values_leave_no_entry(tmp_path: Path) -> None:
    named = ORDER.model_copy(update={"fields": {"email": "identity.email", "total": "orders.last.total"}})
    pipeline = Pipeline(tmp_path, snapshot=with_behaviour((named,)))
    pipeline.process(ORDERS)
    for fragment in pipeline.store.ids():
        pages = pipeline.store.timelines([fragment], ["order"])[fragment]
        assert not any(b"p1@example.com" in page for page in pages.values())
        assert any(b"15" in page or b"5" in page for page in pages.values())


def test_values_that_policy_protects_later_show_in_nothing_that_is_derived(tmp_path: Path) -> None:
    last = derived("behaviour.last", window={"activity": "order", "function": "last", "field": "total"})
    pipeline = Pipeline(tmp_path, snapshot=with_behaviour(definitions=[COUNT, last]))
    pipeline.process(ORDERS)
    projected(pipeline)
    assert looked_up(pipeline) == {"orders30d": 2, "last": 5}
    known = pipeline.snapshot
    others = (each for each in known.attributes if each.path != "orders.last.total")
    attributes = (*others, attribute("orders.last.total", "number", encryption="protected"))
    pipeline.snapshot = known.model_copy(update={"attributes": attributes, "version": 2})
    assert looked_up(pipeline) == {"orders30d": 2}
    reader = pipeline.reader()
    (person,) = reader.owners(PERSON).persons
    *_, timelines = reader.timelines(person, ["order"])
    assert [list(each.fields) for each in timelines["order"]] == [["city"]] * 3
    projected(pipeline)
    assert pipeline.index.search(Query((Term(last.path, 5),))).ids == []


LAPSED = SegmentDocument(
    name="lapsed", version=1, query=to_json(parse_query(["orders.last.at<now-30d"], lambda _: None))
)


def with_segment(document: SegmentDocument = LAPSED, version: int = 1) -> MetadataSnapshot:
    return snapshot(version).model_copy(update={"segments": (document,)})


def crossed(pipeline: Pipeline, segment: str = "lapsed") -> list[int]:
    found = pipeline.store.ledger(segment=segment)
    return [each.number for each in found if isinstance(each, Crossing)]


def members(pipeline: Pipeline, now_ms: int) -> list[str]:
    reader = pipeline.reader()
    reader.now_ms = lambda: now_ms
    (one,) = reader.segments().values()
    found = reader.members(one, 10).profiles
    assert reader.count_members(one) == len(found)
    assert next(reader.segments_of_each([PERSON])) == (["lapsed"] if found else [])
    return [each.id for each in found]


def test_a_person_lapses_without_an_event_and_returns_with_one(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=with_segment(), now=lambda: NOW + 20 * 86400)
    stage = pipeline.commit_stage()

    def ordered(days_ago: float, line: int) -> None:
        made = order(1, line, order_id=f"L{line}", created_at=at(days_ago))
        stage.run(each for output in pipeline.map_stage().run([made]) for each in output.encoded())

    ordered(20, 1)
    lapses = NOW_MS + 10 * DAY_MS + 1
    for now in (NOW_MS, NOW_MS + 5 * DAY_MS, lapses - 1):
        projected(pipeline, now)
        assert (crossed(pipeline), members(pipeline, now)) == ([], [])
    for now in (lapses, lapses, lapses + DAY_MS, lapses + 400 * DAY_MS):
        projected(pipeline, now)
        assert (crossed(pipeline), members(pipeline, now)) == ([1], [own(pipeline)])
    assert pipeline.store.take_due(NOW_MS + 100_000 * DAY_MS, 10) == 0
    ordered(-15, 2)
    projected(pipeline, lapses + 5 * DAY_MS)
    assert crossed(pipeline) == [1, 2]
    projected(pipeline, lapses + 35 * DAY_MS)
    assert crossed(pipeline) == [1, 2, 3]


def test_a_new_segment_of_relative_time_plans_what_is_stored(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path)
    pipeline.process([ORDERS[1]])
    projected(pipeline)
    assert pipeline.store.take_due(NOW_MS + 100_000 * DAY_MS, 10) == 0
    pipeline.snapshot = with_segment(version=2)
    projected(pipeline)
    assert crossed(pipeline) == []
    projected(pipeline, NOW_MS + 11 * DAY_MS)
    assert crossed(pipeline) == [1]


def test_a_segment_of_a_derived_attribute_and_one_of_time_share_the_due_entry(tmp_path: Path) -> None:
    pipeline = Pipeline(tmp_path, snapshot=with_behaviour().model_copy(update={"segments": (LAPSED,)}))
    stage = pipeline.commit_stage()
    stage.run(each for output in pipeline.map_stage().run(ORDERS) for each in output.encoded())
    for days, number, crossings in ((0, 2, []), (12, 1, []), (27.9, 1, []), (28.1, 1, [1]), (60, 0, [1])):
        projected(pipeline, NOW_MS + int(days * DAY_MS))
        assert (found(pipeline, number), crossed(pipeline)) == ([own(pipeline)], crossings)


def test_segments_without_relative_time_plan_nothing(tmp_path: Path) -> None:
    plain = LAPSED.model_copy(
        update={"query": to_json(Query((Range("orders.last.at", upper=NOW_MS - 30 * DAY_MS),)))}
    )
    pipeline = Pipeline(tmp_path, snapshot=with_segment(plain))
    pipeline.process([ORDERS[1]])
    projected(pipeline)
    assert pipeline.store.take_due(NOW_MS + 100_000 * DAY_MS, 10) == 0


def rules_of(
    definitions: Sequence[DerivedDocument], version: int, *activities: ActivityDocument
) -> IndexRules:
    return AttributeTree(with_behaviour(activities or (ORDER,), definitions, version)).index_rules


def sweeping(pipeline: Pipeline, rules: list[IndexRules], now_ms: int = NOW_MS) -> Projection:
    """A process that has the newest of these rules."""
    return Projection(pipeline.store, pipeline.index, lambda: rules[-1], now_ms=lambda: now_ms)


def ordered(pipeline: Pipeline, days_ago: float, line: int = 4, number: int = 1) -> None:
    made = order(number, line, order_id=f"D{line}", created_at=at(days_ago), cart={"total": "1", "items": 1})
    outputs = list(pipeline.map_stage().run([made]))
    pipeline.commit_stage().run(each for output in outputs for each in output.encoded())


OVER_ALL = derived(COUNT.path, 2, window={"activity": "order", "function": "count", "over": "all"})


def test_a_process_with_older_definitions_leaves_entries_for_one_with_the_newer(pipeline: Pipeline) -> None:
    pipeline.process(ORDERS)
    known = [rules_of([COUNT], 1)]
    late, first = sweeping(pipeline, known), sweeping(pipeline, [rules_of([OVER_ALL], 2)])
    late.sweep()
    first.sweep()
    assert found(pipeline, 3) == [own(pipeline)]
    ordered(pipeline, 1)
    assert late.sweep().left() == late.project([own(pipeline)]).left() == 1
    known.append(rules_of([OVER_ALL], 2))
    assert late.sweep().left() == 0
    assert found(pipeline, 4) == [own(pipeline)]
    assert pipeline.store.outbox() == []


def test_definitions_that_are_followed_in_the_middle_of_a_projection_by_older_ones_win(
    pipeline: Pipeline,
) -> None:
    """The other process has settled the version that the older document has."""
    late, first = sweeping(pipeline, [rules_of([COUNT], 1)]), sweeping(pipeline, [rules_of([OVER_ALL], 2)])
    late.sweep()
    pipeline.process(ORDERS)
    store, plan = pipeline.store, pipeline.store.plan

    def followed(due: Collection[DueEntry]) -> None:
        store.plan = plan  # type: ignore[method-assign]
        first.sweep()
        assert store.outbox() == []
        plan(due)

    store.enqueue([own(pipeline)])
    store.plan = followed  # type: ignore[method-assign]
    late.sweep()
    assert first.sweep().projected == 1
    assert (found(pipeline, 3), store.outbox()) == ([own(pipeline)], [])


def test_nobody_enters_an_older_segment_once_a_newer_one_is_followed(pipeline: Pipeline) -> None:
    def rules(version: int, *conditions: Condition) -> IndexRules:
        one = SegmentDocument(name="s", version=version, query=to_json(Query(conditions)))
        known = with_behaviour((ORDER,), (COUNT,), version).model_copy(update={"segments": (one,)})
        return AttributeTree(known).index_rules

    late, first = sweeping(pipeline, [rules(1)]), sweeping(pipeline, [rules(2, Exists("nothing"))])
    late.sweep()
    store, plan = pipeline.store, pipeline.store.plan

    def followed(due: Collection[DueEntry]) -> None:
        store.plan = plan  # type: ignore[method-assign]
        first.sweep()
        plan(due)

    store.plan = followed  # type: ignore[method-assign]
    outputs = list(pipeline.map_stage().run(ORDERS))
    pipeline.commit_stage().run(each for output in outputs for each in output.encoded())
    late.sweep()
    ordered(pipeline, 1)
    late.sweep()
    first.sweep()
    assert store.crossed([own(pipeline)]) == {}


def test_older_definitions_remove_no_due_entry_for_good(pipeline: Pipeline) -> None:
    older, newer = rules_of([SUM], 1), rules_of([SUM, COUNT], 2)
    known = [older]
    late = sweeping(pipeline, known)
    pipeline.process(ORDERS)
    late.sweep()
    sweeping(pipeline, [newer]).sweep()
    ordered(pipeline, 50)
    late.sweep()
    late.follow(Work.FOLLOW_SEGMENTS, [own(pipeline)])
    known.append(newer)
    late.sweep()
    sweeping(pipeline, [newer], NOW_MS + 100 * DAY_MS).sweep()
    assert found(pipeline, 0) == [own(pipeline)]


def test_an_edit_that_derives_the_same_projects_nothing_again(pipeline: Pipeline) -> None:
    described = COUNT.model_copy(update={"version": 2, "description": "orders"})
    unread = ActivityDocument.model_validate(ORDER.model_dump() | {"name": "other", "keep": "10d"})
    known = [rules_of([COUNT], 1)]
    flow, other = sweeping(pipeline, known), sweeping(pipeline, known)
    pipeline.process(ORDERS)
    for each in (flow, other):
        each.sweep()
    for version, activities in ((2, (ORDER,)), (3, (ORDER, unread))):
        known.append(rules_of([described], version, *activities))
        assert [each.sweep().projected for each in (flow, other, sweeping(pipeline, known))] == [0, 0, 0]
    known.append(rules_of([OVER_ALL], 4))
    assert [each.sweep().projected for each in (flow, other, sweeping(pipeline, known))] == [1, 0, 0]
    assert found(pipeline, 3) == [own(pipeline)]
    known.append(rules_of([described], 5))
    assert [each.sweep().projected for each in (other, flow)] == [1, 0]


@pytest.mark.parametrize("is_between", [True, False])
def test_an_edit_that_was_taken_back_is_undone_where_a_process_had_it(
    pipeline: Pipeline, is_between: bool
) -> None:
    """That process ends before it has followed the edit; it may begin while another one compares the versions around it."""
    flow = sweeping(pipeline, [rules_of([COUNT], 1)])
    pipeline.process(ORDERS)
    flow.sweep()
    ordered(pipeline, 1)
    store, remember = pipeline.store, pipeline.store.remember

    def edited(mark: str = "", instead_of: str = "") -> None:
        store.remember = remember  # type: ignore[method-assign]
        sweeping(pipeline, [rules_of([OVER_ALL], 2)]).project([own(pipeline)])
        assert (found(pipeline, 4), store.outbox()) == ([own(pipeline)], [])
        if mark:
            remember(mark, instead_of)

    if is_between:
        store.remember = edited  # type: ignore[method-assign]
    else:
        edited()
    sweeping(pipeline, [rules_of([COUNT], 3)]).sweep()
    assert found(pipeline, 3) == [own(pipeline)]


def test_fresh_events_wait_for_some_due_entries_and_these_for_none(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idgraph.projection.projection.DUE_AT_ONCE", 2)
    for number in range(2, 8):
        ordered(pipeline, 29, 1, number)
    projected(pipeline)
    later, settle = NOW_MS + 2 * DAY_MS, pipeline.store.settle
    rounds: list[set[str]] = []

    def settled(entries: Sequence[OutboxEntry]) -> None:
        settle(entries)
        rounds.append({each.fragment_id for each in entries})
        if len(rounds) < 3:
            # Another event comes with each round.
            ordered(pipeline, 1, 3 + len(rounds))

    monkeypatch.setattr(pipeline.store, "settle", settled)
    ordered(pipeline, 1, 3)
    [(fresh, _)] = pipeline.store.outbox()
    assert sweeping(pipeline, [pipeline.rules()], later).sweep().is_whole
    assert [fresh in each for each in rounds] == [True] * 3
    assert [len(each - {fresh}) for each in rounds] == [2, 2, 2]
    assert pipeline.store.take_due(later, 10) == 0


def test_fresh_events_wait_for_some_of_those_whom_a_definition_changes(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("idgraph.projection.projection.DUE_AT_ONCE", 2)
    known = [rules_of([COUNT], 1)]
    flow = sweeping(pipeline, known)
    ordered(pipeline, 1)
    [(fresh, _)] = pipeline.store.outbox()
    for number in range(2, 8):
        ordered(pipeline, 29, 1, number)
    flow.sweep()
    settle, rounds = pipeline.store.settle, list[set[str]]()

    def settled(entries: Sequence[OutboxEntry]) -> None:
        settle(entries)
        rounds.append({each.fragment_id for each in entries})
        if len(rounds) < 4:
            ordered(pipeline, 1, 4 + len(rounds))

    monkeypatch.setattr(pipeline.store, "settle", settled)
    ordered(pipeline, 1, 3)
    known.append(rules_of([OVER_ALL], 2))
    assert flow.sweep().is_whole
    assert [fresh in each for each in rounds[:4]] == [True] * 4
    assert max(len(each - {fresh}) for each in rounds) == 2
    assert len(set().union(*rounds)) == 7
