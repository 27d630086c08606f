"""Test cases of specs: run when a spec is checked and published, and without what not everybody may see."""

from __future__ import annotations

from typing import Any

import pytest

from tests.metadata_service.conftest import Running
from tests.metadata_service.test_spec_approval import FIRST, clinic, definition, put

pytestmark = pytest.mark.slow


__all__ = ["clinic"]

SHIFT = FIRST | {"city": "address.city", "salary": "pay.salary", "at": "_event.at"}
CASE = {
    "name": "a visit",
    "payload": {"patient": "p-1", "city": "Oslo"},
    "output": {"identity": {"patient": "p-1"}, "address": {"city": "Oslo"}},
}
FAILING = CASE | {"output": {"identity": {"patient": "p-1"}, "address": {"city": "Bergen"}}}


def case(**payload: Any) -> dict[str, Any]:
    return {"name": "c", "payload": {"patient": "p-1", **payload}}


def test_a_case_that_fails_stops_a_publication_until_somebody_insists(clinic: Running) -> None:
    assert put(clinic, SHIFT, cases=[CASE]).status_code == 200
    refused = put(clinic, SHIFT, cases=[FAILING], description="next")
    assert refused.status_code == 422
    assert refused.json()["pointer"] == "/cases/0"
    assert 'at /address/city it gives "Oslo" instead of "Bergen"' in refused.json()["detail"]
    checked = clinic.admin.post(
        "/v1/specs/check", json=definition(SHIFT, cases=[CASE, FAILING | {"name": "b"}])
    )
    assert [each["problem"] is None for each in checked.json()["cases"]] == [True, False]
    assert put(clinic, SHIFT, "draft", cases=[FAILING], description="next").status_code == 200
    status = "/v1/specs/clinic/status"
    assert clinic.admin.post(status, json={"status": "active"}).status_code == 422
    insisting = {"status": "active", "allow_failing_cases": True}
    assert clinic.admin.post(status, json=insisting).status_code == 200


def test_flows_are_sent_no_cases(clinic: Running) -> None:
    put(clinic, SHIFT, cases=[CASE])
    [spec] = clinic.reader.get("/v1/snapshot").json()["specs"]
    assert "cases" not in spec
    assert clinic.reader.get("/v1/specs/clinic").json()["document"]["cases"] == [CASE]


def test_a_case_that_expects_to_be_set_aside_passes_when_it_is(clinic: Running) -> None:
    nobody = {"name": "nobody", "payload": {"city": "Oslo"}, "output": None}
    assert put(clinic, SHIFT, cases=[nobody]).status_code == 200
    mapped = CASE | {"name": "somebody", "output": None}
    assert put(clinic, SHIFT, cases=[nobody, mapped], description="next").status_code == 422


@pytest.mark.parametrize(
    ("payload", "is_refused"),
    [
        ({"diagnosis": "flu"}, True),
        ({"diagnosis": "Sealed "}, False),
        ({"diagnosis": None}, False),
        ({"salary": 70_000}, True),
        ({"salary": 0}, False),
        ({"city": "someone@example.com"}, True),
        ({"city": "Oslo"}, False),
        ({"someone@example.com": "x"}, True),
    ],
)
def test_no_case_holds_what_not_everybody_sees(
    clinic: Running, payload: dict[str, Any], is_refused: bool
) -> None:
    salary = {"path": "pay.salary", "data_type": "integer", "authorization_level": 30}
    clinic.admin.put("/v1/attributes/pay.salary", json=salary).raise_for_status()
    answer = put(clinic, SHIFT, "draft", cases=[case(**payload)])
    assert (answer.status_code == 422) is is_refused, answer.text
    assert not is_refused or answer.json()["pointer"].startswith("/cases/0/payload/")
    checked = clinic.admin.post("/v1/specs/check", json=definition(SHIFT, cases=[case(**payload)]))
    assert (checked.status_code == 422) is is_refused


def test_a_case_of_an_event_has_something_made_up_for_what_is_somebodys(clinic: Running) -> None:
    for path, more in (
        ("pay.salary", {"data_type": "integer", "authorization_level": 30}),
        ("address.street", {"data_type": "string", "identifiable": True}),
    ):
        stated = {"path": path, **more}
        clinic.admin.put(f"/v1/attributes/{path}", json=stated).raise_for_status()
    payload = {
        **{"patient": "p-77", "diagnosis": "flu", "city": "Oslo", "salary": 70_000, "street": "Elm Street 1"},
        **{"note": "not read", "at": "2024-03-01", "visits": [{"doctor": "Dr. No"}]},
    }
    wish = {
        "definition": definition(SHIFT | {"street": "address.street"}),
        "payload": payload,
        "name": "a visit",
    }
    answer = clinic.admin.post("/v1/specs/cases", json=wish)
    assert answer.status_code == 200, answer.text
    made = answer.json()
    assert made["payload"] == {
        **{"patient": "sealed", "diagnosis": "sealed", "city": "Oslo", "salary": 0, "street": "sealed"},
        **{"note": "sealed", "at": "sealed", "visits": [{"doctor": "sealed"}]},
    }
    assert made["output"]["address"] == {"city": "Oslo", "street": "sealed"}
    assert put(clinic, SHIFT | {"street": "address.street"}, cases=[made]).status_code == 200


def test_a_draft_lets_no_case_hold_what_the_spec_in_force_protects(clinic: Running) -> None:
    open_shift = FIRST | {"diagnosis": "notes.d"}
    held = case(diagnosis="flu")
    refused = put(clinic, open_shift, "draft", cases=[held])
    assert refused.status_code == 422
    assert refused.json()["pointer"] == "/cases/0/payload/diagnosis"
    wish = {"definition": definition(open_shift), "payload": held["payload"], "name": "c"}
    made = clinic.admin.post("/v1/specs/cases", json=wish).json()
    assert made["payload"]["diagnosis"] == "sealed"
    unknown = FIRST | {"diagnosis": {"*": {"$": "health.@(2,patient)"}}}
    assert put(clinic, unknown, "draft", cases=[held]).status_code == 422
    anywhere = FIRST | {"diagnosis": {"*": {"$": "@(2,patient)"}}}
    assert put(clinic, anywhere, "draft", cases=[held]).status_code == 422
