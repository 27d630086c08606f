"""Triggers in the metadata service: refusals with their place, and the snapshot."""

from __future__ import annotations

from typing import Any

import pytest

from tests.metadata_service.conftest import Running
from tests.metadata_service.test_behaviour import COUNT, ORDER, put, snapshot

pytestmark = pytest.mark.slow

TRIGGER = {"name": "welcome", "when": {"segment": "adults"}, "webhook": "crm", "view": "short"}


@pytest.fixture(autouse=True)
def _segment_and_view(service: Running) -> None:
    put(service, "segments", {"name": "adults", "q": "demographics.age>=18"})
    put(service, "views", {"name": "short", "attributes": {"age": "demographics.age"}})
    sealed = {"path": "identity.sealed", "data_type": "string", "encryption": "protected"}
    assert service.admin.put("/v1/attributes/identity.sealed", json=sealed).status_code == 201


def test_a_trigger_reaches_the_snapshot(service: Running) -> None:
    quiet = {"from": "22:00", "to": "08:00", "time_zone": "Europe/Berlin"}
    saved = put(service, "triggers", TRIGGER | {"quiet": quiet})
    assert (saved.status_code, saved.json()["quiet"]) == (201, quiet)
    (known,) = snapshot(service).triggers
    assert known.quiet
    assert known.quiet.model_dump(mode="json") == quiet
    put(service, "triggers", TRIGGER | {"status": "retired"})
    assert snapshot(service).triggers == ()


def test_an_own_search_is_kept_as_it_was_meant(service: Running) -> None:
    saved = put(service, "triggers", TRIGGER | {"when": {"q": "demographics.age>=18"}})
    assert saved.status_code == 201, saved.text
    (known,) = snapshot(service).triggers
    assert known.own_segment()
    assert known.query
    assert (known.query[0]["range"]["path"], known.query[0]["range"]["lower"]) == ("demographics.age", 18)


def test_an_attribute_is_followed_under_a_name_of_its_own(service: Running) -> None:
    saved = put(service, "triggers", TRIGGER | {"when": {"attribute": "demographics.age"}})
    assert saved.status_code == 201, saved.text
    (known,) = snapshot(service).triggers
    own = known.own_segment()
    assert own
    assert (known.when.change, own.attribute, own.name[:14]) == (
        "changes",
        "demographics.age",
        "value:welcome:",
    )


@pytest.mark.parametrize(
    ("changed", "pointer"),
    [
        ({"when": {"segment": "none"}}, "/when/segment"),
        ({"when": {"segment": "adults", "on": "changed"}}, "/when/on"),
        ({"when": {"segment": "adults", "on": "becomes_true"}}, "/when"),
        ({"when": {"segment": "adults", "q": "a=1"}}, "/when"),
        ({"when": {"attribute": "demographics.age", "on": "entered"}}, "/when"),
        ({"when": {"attribute": "demographics.age", "q": "a=1"}}, "/when"),
        ({"when": {"attribute": "identity.sealed", "on": "changes"}}, "/when/attribute"),
        ({"topic": "messages"}, ""),
        ({"webhook": None}, ""),
        ({"view": "none"}, "/view"),
        ({"when": {"q": "demographics.age>=("}}, "/when/q"),
        ({"expires": "soon"}, "/expires"),
        ({"limits": [{"most": 1}]}, "/limits/0"),
        ({"limits": [{"most": 1, "per": "1d", "calendar": "day"}]}, "/limits/0"),
        ({"quiet": {"from": "22:00", "to": "22:00"}}, "/quiet"),
        ({"quiet": {"from": "22:00", "to": "24:00"}}, "/quiet/to"),
        ({"quiet": {"from": "22:00", "to": "08:00", "time_zone": "Mars"}}, "/quiet/time_zone"),
    ],
)
def test_refusals_name_their_place(service: Running, changed: dict[str, Any], pointer: str) -> None:
    answer = put(service, "triggers", TRIGGER | changed)
    assert answer.status_code == 422, answer.text
    problem = answer.json()
    assert [each["pointer"] for each in problem.get("errors", [problem])] == [pointer]


def test_what_is_in_use_is_retired_or_moved_with_a_warning(service: Running) -> None:
    def warned(kind: str, body: dict[str, Any]) -> list[str]:
        checked = service.admin.post(f"/v1/{kind}/check", json=body).json()["warnings"]
        saved = put(service, kind, body).json().get("warnings", [])
        assert saved == checked
        return [str(each) for each in saved]

    put(service, "activities", ORDER)
    put(service, "derived-attributes", COUNT)
    put(service, "derived-attributes", {"name": "other", "path": "other", "window": {"activity": "order"}})
    put(
        service,
        "derived-attributes",
        {"name": "often", "path": "often", "expression": f"{COUNT['path']} > `3`"},
    )
    put(service, "segments", {"name": "buyers", "q": f"{COUNT['path']}>0"})
    put(service, "views", {"name": "orders", "attributes": {"orders": COUNT["path"]}})
    put(service, "triggers", TRIGGER | {"when": {"segment": "buyers"}})
    put(service, "triggers", TRIGGER | {"name": "counted", "when": {"attribute": COUNT["path"]}})
    put(service, "triggers", TRIGGER | {"name": "first", "when": {"q": f"{COUNT['path']}=1"}})
    readers = "view orders, segment buyers, derived attribute often, trigger counted, trigger first"
    said = [f"in use by {readers}: they get nothing from it any more"]
    assert warned("derived-attributes", COUNT | {"description": "the same path"}) == []
    assert warned("derived-attributes", COUNT | {"path": "elsewhere"}) == said
    assert warned("derived-attributes", COUNT) == []
    assert warned("derived-attributes", COUNT | {"status": "retired"}) == said
    (said_of_segment,) = warned(
        "segments", {"name": "buyers", "q": "demographics.age>0", "status": "retired"}
    )[-1:]
    assert said_of_segment == "in use by trigger welcome: they get nothing from it any more"


@pytest.mark.parametrize("when", [{"q": "demographics.agee>=18"}, {"attribute": "demographics.agee"}])
def test_an_unknown_attribute_is_warned_of(service: Running, when: dict[str, str]) -> None:
    declared = {"path": "demographics.age", "data_type": "integer"}
    assert service.admin.put("/v1/attributes/demographics.age", json=declared).status_code == 201
    (said,) = put(service, "triggers", TRIGGER | {"when": when}).json()["warnings"]
    assert "no attribute is called demographics.agee; did you mean demographics.age?" in said
    known = {each: text.replace("agee", "age") for each, text in when.items()}
    assert "warnings" not in put(service, "triggers", TRIGGER | {"when": known}).json()
