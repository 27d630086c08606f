"""Activities and derived attributes in the metadata service: refusals with their place, the snapshot, the catalogue."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from idgraph.model.behaviour import ActivityDocument
from idgraph.model.snapshots import MetadataSnapshot
from tests.metadata_service.conftest import Running
from transforms.schema.diff import AttributeTree

pytestmark = pytest.mark.slow

ORDER = {"name": "order", "source": "orders", "fields": {"total": "orders.last.total"}}
COUNT: dict[str, Any] = {
    "name": "orders30d",
    "path": "behaviour.orders30d",
    "window": {"activity": "order", "over": "30d"},
}


def put(service: Running, kind: str, body: dict[str, Any]) -> httpx.Response:
    return service.admin.put(f"/v1/{kind}/{body['name']}", json=body)


def snapshot(service: Running) -> MetadataSnapshot:
    return MetadataSnapshot.model_validate_json(service.reader.get("/v1/snapshot").content)


def test_definitions_reach_the_snapshot_and_the_catalogue(service: Running) -> None:
    assert put(service, "activities", ORDER).status_code == 201
    assert put(service, "derived-attributes", COUNT).status_code == 201
    known = snapshot(service)
    assert [each.name for each in known.activities] == ["order"]
    assert [each.path for each in known.derived_attributes] == ["behaviour.orders30d"]
    attribute = service.reader.get("/v1/attributes/behaviour.orders30d").json()
    assert (attribute["data_type"], attribute["source"]) == ("integer", "derived:orders30d")
    put(service, "derived-attributes", COUNT | {"status": "retired"})
    assert snapshot(service).derived_attributes == ()
    retired = snapshot(service).behaviour_version
    assert retired > known.behaviour_version
    put(service, "segments", {"name": "all", "q": "behaviour.orders30d>=0"})
    assert snapshot(service).behaviour_version > retired


def test_a_retired_activity_stays_in_the_snapshot_and_is_not_in_force(service: Running) -> None:
    put(service, "activities", ORDER)
    put(service, "activities", ORDER | {"status": "retired"})
    known = snapshot(service)
    assert [(each.version, each.status) for each in known.activities] == [(2, "retired")]
    assert AttributeTree(known).index_rules.behaviour.activities == ()


def test_the_catalogue_has_the_fields_of_sessions_and_patterns(service: Running) -> None:
    total = {"path": "orders.last.total", "data_type": "number"}
    assert service.admin.put("/v1/attributes/orders.last.total", json=total).status_code == 201
    put(service, "activities", ORDER | {"fields": {"total": "orders.last.total", "city": "address.city"}})
    sessions = {"activity": "order", "fields": ["total", "city"]}
    assert put(service, "derived-attributes", {"name": "s", "path": "s", "sessions": sessions}).is_success
    pattern = {"activities": ["order"], "pattern": "A B{2,3}? $"}
    assert put(service, "derived-attributes", {"name": "p", "path": "p", "pattern": pattern}).is_success
    kinds = {
        path: service.reader.get(f"/v1/attributes/{path}").json().get("data_type")
        for path in ("s.current.first.total", "s.last.last.city", "p.last.A.total", "p.last.B.city")
    }
    assert list(kinds.values()) == ["number", "string", "number", "string"]


@pytest.mark.parametrize(
    ("kind", "body", "pointer"),
    [
        ("activities", {"condition": "a["}, "/condition"),
        ("activities", {"fields": {"id": "_event.id"}}, "/fields/id"),
        ("activities", {"fields": {"mail": "identity.email"}}, "/fields/mail"),
        ("activities", {"condition": "identity.email == 'x'"}, "/condition"),
        ("activities", {"time": "identity.email"}, "/time"),
        ("activities", {"keep": "a year"}, "/keep"),
        ("derived-attributes", {"path": "a"}, ""),
        ("derived-attributes", {"path": "a", "window": {"activity": "none"}}, "/window/activity"),
        (
            "derived-attributes",
            {"path": "a", "window": {"activity": "order", "function": "sum", "field": "cost"}},
            "/window/field",
        ),
        ("derived-attributes", {"path": "identity.email.count", "window": {"activity": "order"}}, "/path"),
        ("derived-attributes", {"path": "consents.x", "window": {"activity": "order"}}, "/path"),
        ("derived-attributes", {"path": "behaviour", "window": {"activity": "order"}}, "/path"),
        ("derived-attributes", {"path": "a", "expression": "b["}, "/expression"),
    ],
)
def test_what_cannot_work_is_refused_with_the_place(
    service: Running, kind: str, body: dict[str, Any], pointer: str
) -> None:
    protected = {"path": "identity.email", "data_type": "string", "encryption": "searchable"}
    assert service.admin.put("/v1/attributes/identity.email", json=protected).status_code == 201
    put(service, "activities", ORDER)
    put(service, "derived-attributes", COUNT)
    answer = put(service, kind, {"name": "x"} | body)
    assert (answer.status_code, answer.json().get("pointer", "")) == (422, pointer), answer.text


def spec(name: str, path: str) -> dict[str, Any]:
    return {
        "name": name,
        "source": name,
        "operations": [{"operation": "shift", "spec": {"who": "who", "at": "at", "n": path}}],
        "id": "who",
        "ordinal": "at",
        "identifiers": [{"path": "who", "type": "person", "primary": True}],
        "status": "active",
    }


@pytest.mark.parametrize("below", ["", ".of.year"])
def test_no_spec_writes_to_the_path_of_a_derived_attribute(service: Running, below: str) -> None:
    path = COUNT["path"] + below
    draft = spec("late", path) | {"status": "draft"}
    put(service, "specs", draft)
    put(service, "activities", ORDER)
    put(service, "derived-attributes", COUNT)
    answers = [
        put(service, "specs", spec("crm", path)),
        put(service, "specs", draft | {"source": "another"}),
        service.admin.post("/v1/specs/check", json=spec("crm", path)),
        service.admin.post("/v1/specs/late/status", json={"status": "active"}),
    ]
    for each in answers:
        found = each.json()
        assert (each.status_code, found["pointer"]) == (422, "/operations/0/spec/n"), found
        assert "orders30d" in found["detail"]
    put(service, "derived-attributes", COUNT | {"status": "retired"})
    assert put(service, "specs", spec("crm", path)).status_code == 201
    refused = put(service, "derived-attributes", COUNT).json()
    assert (refused["pointer"], "the spec crm" in refused["detail"]) == ("/path", True)


def test_a_path_is_free_again_once_its_definition_is_retired(service: Running) -> None:
    put(service, "activities", ORDER)
    put(service, "derived-attributes", COUNT)
    other = COUNT | {"name": "ordersOfAMonth"}
    assert put(service, "derived-attributes", other).json()["pointer"] == "/path"
    put(service, "derived-attributes", COUNT | {"status": "retired"})
    assert put(service, "derived-attributes", other).status_code == 201


def test_an_activity_that_derived_attributes_read_keeps_its_fields_and_is_not_retired(
    service: Running,
) -> None:
    put(service, "activities", ORDER)
    put(service, "derived-attributes", COUNT)
    total = {"activity": "order", "function": "sum", "field": "total"}
    put(service, "derived-attributes", {"name": "revenue", "path": "behaviour.revenue", "window": total})
    refused = put(service, "activities", ORDER | {"status": "retired"}).json()
    assert (refused["pointer"], "orders30d, revenue" in refused["detail"]) == ("/status", True)
    refused = put(service, "activities", ORDER | {"fields": {}}).json()
    assert (refused["pointer"], "revenue" in refused["detail"]) == ("/fields", True)
    for name, path in (("orders30d", "behaviour.orders30d"), ("revenue", "behaviour.revenue")):
        retired = {"name": name, "path": path, "window": total, "status": "retired"}
        assert put(service, "derived-attributes", retired).status_code == 200
    assert put(service, "activities", ORDER | {"status": "retired"}).status_code == 200


def test_entries_that_count_have_fields_of_one_path(service: Running) -> None:
    put(service, "activities", ORDER)
    other = ORDER | {"fields": {"total": "orders.last.net"}}
    assert put(service, "activities", other).json()["pointer"] == "/fields/total"
    put(service, "activities", ORDER | {"fields": {}})
    assert put(service, "activities", other).json()["pointer"] == "/fields/total"
    assert put(service, "activities", other | {"generation": 1}).status_code == 200
    assert put(service, "activities", ORDER).json()["pointer"] == "/generation"


def test_an_activity_that_names_other_events_is_saved_with_a_warning(service: Running) -> None:
    assert "warnings" not in put(service, "activities", ORDER).json()
    narrowed = ORDER | {"condition": "total > `10`"}
    assert "generation" in put(service, "activities", narrowed).json()["warnings"][0]
    assert "warnings" not in put(service, "activities", ORDER | {"generation": 1}).json()


def test_entries_are_whole_from_when_an_activity_came_into_force(service: Running) -> None:
    def since(body: dict[str, Any]) -> datetime | None:
        saved = put(service, "activities", body)
        assert saved.is_success, saved.text
        return ActivityDocument.model_validate(saved.json()).since

    before = datetime.now(UTC)
    first = since(ORDER)
    assert first is not None
    assert before <= first <= datetime.now(UTC)
    assert put(service, "activities", ORDER).json()["version"] == 1
    assert since(ORDER | {"keep": "90d"}) == first
    assert since(ORDER | {"since": None}) is None
    assert since(ORDER) is None
    assert since(ORDER | {"status": "retired"}) is None
    again = since(ORDER)
    assert again is not None
    assert again > first


@pytest.mark.parametrize(
    ("over", "pointer"),
    [("thirty", "/window/over"), ({"calendar": "decade"}, "/window/over/calendar"), (5, "/window/over")],
)
def test_a_time_that_cannot_be_is_one_problem(service: Running, over: Any, pointer: str) -> None:
    put(service, "activities", ORDER)
    answer = put(
        service, "derived-attributes", COUNT | {"window": {"activity": "order", "over": over}}
    ).json()
    assert [each["pointer"] for each in answer["errors"]] == [pointer]


def test_no_expression_reads_what_is_derived_after_it(service: Running) -> None:
    def refused(name: str, path: str, expression: str) -> tuple[int, str]:
        answer = put(service, "derived-attributes", {"name": name, "path": path, "expression": expression})
        return answer.status_code, answer.json().get("pointer", "")

    assert refused("often", "often", "orders.count > `3`") == (201, "")
    assert refused("always", "always", "often && orders.count > `9`") == (422, "/expression")
    assert refused("itself", "itself", "itself.x") == (422, "/expression")
    assert refused("orders", "orders", "visits.last") == (422, "/path")
    assert refused("often", "often", "orders.total > `3`") == (200, "")


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        (
            {"expression": "visits.lost"},
            "no attribute has the path visits.lost, or one above or below it; did you mean visits.last?",
        ),
        ({"expression": "visits"}, ""),
        ({"window": {"activity": "order", "condition": "total > `1`"}}, ""),
        (
            {"window": {"activity": "order", "condition": "totl > `1`"}},
            "/window/condition: entries of order have no field totl; did you mean 'total'?",
        ),
        (
            {"sessions": {"activity": "order", "condition": "activity == 'order'"}},
            "/sessions/condition: entries of order have no field activity; they have: total",
        ),
        (
            {
                "pattern": {
                    "activities": ["order"],
                    "pattern": "A+ B",
                    "define": {
                        "A": "activity == 'order' && time > `0`",
                        "B": "total > first.A.total && previous.total",
                    },
                }
            },
            "",
        ),
        (
            {"pattern": {"activities": ["order"], "pattern": "A B", "define": {"B": "total > A.totl"}}},
            "/pattern/define/B: entries of order have no field totl; did you mean 'total'?",
        ),
    ],
)
def test_names_that_nothing_has_are_warned_of(
    service: Running, definition: dict[str, Any], said: str
) -> None:
    declared = {"path": "visits.last", "data_type": "integer"}
    assert service.admin.put("/v1/attributes/visits.last", json=declared).status_code == 201
    put(service, "activities", ORDER)
    saved = put(service, "derived-attributes", {"name": "x", "path": "x"} | definition)
    assert saved.is_success, saved.text
    assert saved.json().get("warnings", []) == ([said] if said else [])
