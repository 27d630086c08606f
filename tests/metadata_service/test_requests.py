"""Requests for access: who asks, who answers, and what is in force."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event

from idgraph.web.cursors import PageRequest
from metadata_service.storage.grants import (
    LONGEST,
    State,
    ending,
    grants_in_force,
    list_grants,
    specs_granted,
)
from tests.metadata_service.test_access import assert_problem
from tests.metadata_service.test_users import House

pytestmark = pytest.mark.slow


AGE = {"path": "demographics.age", "data_type": "integer", "authorization_level": 30}


class Office(House):
    """People who ask and answer, and an attribute that needs clearance 30."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        super().__init__(stack, folder)
        self.growth = self.person("growth", clearance=10)
        self.officer = self.person("officer", role="privacy", clearance=60)
        self.admin.put("/v1/attributes/demographics.age", json=AGE).raise_for_status()

    def asked(self, client: httpx.Client | None = None, **changed: Any) -> dict[str, Any]:
        body = {"path": AGE["path"], "purpose": "summer campaign", "until": days(30)} | changed
        answer = (client or self.growth).post("/v1/requests", json=body)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def in_force(self, at: datetime | None = None) -> list[tuple[str, str, int]]:
        with self.database.read() as session:
            found = grants_in_force(session, at or datetime.now(UTC))
        return [(each.person, each.path, each.level) for each in found]


def days(number: float) -> str:
    return (datetime.now(UTC) + timedelta(days=number)).isoformat()


@pytest.fixture
def office(tmp_path: Path) -> Iterator[Office]:
    with ExitStack() as stack:
        yield Office(stack, tmp_path)


GRANT = {"action": "granted", "reason": "the group is enough"}


def test_a_request_is_granted_until_its_end(office: Office) -> None:
    request = office.asked()
    assert (request["state"], request["person"], request["level"]) == ("waits", "growth", 30)
    assert office.in_force() == []
    place = f"/v1/requests/{request['id']}"
    granted = office.officer.post(f"{place}/answer", json=GRANT | {"until": days(7)}).json()
    assert granted["state"] == "granted"
    assert office.in_force() == [("growth", "demographics.age", 30)]
    assert office.in_force(datetime.now(UTC) + timedelta(days=8)) == []
    shown = office.growth.get(place).json()
    assert [(each["action"], each["actor"], each["reason"]) for each in shown["steps"]] == [
        ("granted", "officer/first", "the group is enough")
    ]
    assert_problem(office.officer.post(f"{place}/answer", json=GRANT), 409)
    ended = office.growth.post(f"{place}/end", json={"reason": "done"}).json()
    assert ended["state"] == "ended"
    assert office.in_force() == []
    assert_problem(office.growth.post(f"{place}/end", json={"reason": "again"}), 409)


def test_it_is_refused_or_asked_back(office: Office) -> None:
    place = f"/v1/requests/{office.asked()['id']}"
    assert_problem(office.growth.post(f"{place}/reply", json={"reason": "why not"}), 409)
    question = {"action": "asked", "reason": "for how long?"}
    assert office.officer.post(f"{place}/answer", json=question).json()["state"] == "asked"
    assert office.growth.post(f"{place}/reply", json={"reason": "a week"}).json()["state"] == "waits"
    refused = office.officer.post(f"{place}/answer", json={"action": "refused", "reason": "no"}).json()
    assert refused["state"] == "refused"
    assert [each["action"] for each in refused["steps"]] == ["asked", "replied", "refused"]
    assert office.in_force() == []
    listed = office.officer.get("/v1/requests", params={"state": "refused"}).json()["items"]
    assert [each["id"] for each in listed] == [refused["id"]]
    assert office.officer.get("/v1/requests", params={"state": "waits"}).json()["items"] == []


def test_nobody_grants_to_themselves_or_what_they_do_not_see(office: Office) -> None:
    own = office.asked(office.officer)
    assert_problem(office.officer.post(f"/v1/requests/{own['id']}/answer", json=GRANT), 409)
    other_key = office.officer.post("/v1/keys", json={"name": "other", "role": "privacy"}).json()["token"]
    assert_problem(office.client(other_key).post(f"/v1/requests/{own['id']}/answer", json=GRANT), 409)
    assert_problem(office.growth.post(f"/v1/requests/{own['id']}/answer", json=GRANT), 403)
    low = office.person("publisher", role="publisher", clearance=20)
    request = office.asked()
    assert_problem(low.post(f"/v1/requests/{request['id']}/answer", json=GRANT), 403)
    assert (
        low.post(f"/v1/requests/{request['id']}/answer", json=GRANT | {"action": "refused"}).status_code
        == 200
    )
    assert office.in_force() == []


def test_a_grant_is_of_all_that_is_below_and_its_level(office: Office) -> None:
    office.admin.put(
        "/v1/attributes/demographics", json={"path": "demographics", "data_type": "string"}
    ).raise_for_status()
    request = office.asked(path="demographics")
    assert request["level"] == 30, "what is below needs it"
    office.officer.post(f"/v1/requests/{request['id']}/answer", json=GRANT).raise_for_status()
    office.admin.put(
        "/v1/attributes/demographics.income",
        json=AGE | {"path": "demographics.income", "authorization_level": 50},
    ).raise_for_status()
    assert office.in_force() == [("growth", "demographics", 30)], "not what came later"


def test_a_view_is_asked_for_as_its_version_is(office: Office) -> None:
    salary = {"path": "pay.salary", "data_type": "integer", "authorization_level": 50}
    office.admin.put("/v1/attributes/pay.salary", json=salary).raise_for_status()
    view: dict[str, Any] = {"name": "card", "attributes": {"age": "demographics.age", "pay": "pay.salary"}}
    office.admin.put("/v1/views/card", json=view).raise_for_status()
    request = office.asked(path="", view="card")
    assert (request["path"], request["view"], request["view_version"]) == ("", "card", 1)
    assert (request["shows"], request["level"]) == (["demographics.age", "pay.salary"], 50)
    wider = view | {"attributes": view["attributes"] | {"name": "name.first"}}
    office.admin.put("/v1/views/card", json=wider).raise_for_status()
    place = f"/v1/requests/{request['id']}"
    assert office.officer.post(f"{place}/answer", json=GRANT).json()["state"] == "granted"
    assert office.in_force() == [("growth", "demographics.age", 30), ("growth", "pay.salary", 50)]
    office.admin.put(
        "/v1/attributes/pay.salary", json=salary | {"authorization_level": 60}
    ).raise_for_status()
    assert office.in_force()[1] == ("growth", "pay.salary", 50)
    assert office.growth.post(f"{place}/end", json={"reason": "done"}).json()["state"] == "ended"
    assert office.in_force() == []


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"view": "card"}, 422),
        ({"spec": "payroll"}, 422),
        ({"path": ""}, 422),
        ({"path": "", "view": "none"}, 404),
        ({"path": "", "view": "whole"}, 422),
    ],
)
def test_a_request_is_for_a_path_or_a_view_with_named_attributes(
    office: Office, changed: dict[str, Any], status: int
) -> None:
    view = {"name": "whole", "attributes": {"all": "@"}}
    office.admin.put("/v1/views/whole", json=view).raise_for_status()
    body = {"path": AGE["path"], "purpose": "campaign", "until": days(30)} | changed
    assert_problem(office.growth.post("/v1/requests", json=body), status)


def spec_of(name: str) -> dict[str, Any]:
    shift = [{"operation": "shift", "spec": {"u": "u"}}]
    key = {"type": "user_id", "path": "u", "primary": True}
    return {"name": name, "source": name, "operations": shift, "identifiers": [key]}


def test_a_granted_spec_is_edited_until_the_end_of_the_grant(office: Office) -> None:
    for name in ("payroll", "other"):
        office.admin.put(f"/v1/specs/{name}", json=spec_of(name)).raise_for_status()
    draft = spec_of("payroll") | {"description": "from the payroll team"}
    assert_problem(office.growth.put("/v1/specs/payroll", json=draft), 403)
    assert_problem(office.growth.post("/v1/specs/check", json=draft), 403)
    assert_problem(
        office.growth.post("/v1/requests", json={"spec": "none", "purpose": "x", "until": days(1)}), 404
    )
    request = office.asked(path="", spec="payroll")
    assert (request["spec"], request["path"], request["shows"], request["level"]) == ("payroll", "", [], 0)
    place = f"/v1/requests/{request['id']}"
    assert_problem(office.officer.post(f"{place}/answer", json=GRANT), 403)
    publisher = office.person("publisher", role="publisher")
    assert publisher.post(f"{place}/answer", json=GRANT).json()["state"] == "granted"
    assert office.in_force() == [], "a spec is no path of a profile"
    assert office.growth.post("/v1/specs/check", json=draft).status_code == 200
    office.growth.put("/v1/specs/payroll", json=draft).raise_for_status()
    saved = office.growth.get("/v1/specs/payroll/versions/2").json()
    assert (saved["actor"], saved["document"]["description"]) == ("growth/first", draft["description"])
    for refused in (
        office.growth.put("/v1/specs/payroll", json=draft | {"status": "active"}),
        office.growth.post("/v1/specs/payroll/status", json={"status": "active"}),
        office.growth.put("/v1/specs/other", json=spec_of("other")),
        office.growth.put("/v1/specs/new", json=spec_of("new")),
        office.person("colleague").put("/v1/specs/payroll", json=draft),
    ):
        assert_problem(refused, 403)
    with office.database.read() as session:
        assert specs_granted(session, datetime.now(UTC), "growth") == {"payroll"}
        assert specs_granted(session, datetime.now(UTC) + timedelta(days=31), "growth") == set()
    office.growth.post(f"{place}/end", json={"reason": "done"}).raise_for_status()
    assert_problem(office.growth.put("/v1/specs/payroll", json=draft), 403)


def test_the_end_of_a_grant_is_reminded_of_until_a_later_one_is_asked_for(office: Office) -> None:
    def soon(after: float = 0) -> list[int]:
        now = datetime.now(UTC) + timedelta(days=after)
        with office.database.read() as session:
            return [each.id for each in ending(session, now, "growth")]

    request = office.asked()
    office.officer.post(f"/v1/requests/{request['id']}/answer", json=GRANT | {"until": days(20)})
    assert soon() == []
    assert soon(14) == [request["id"]]
    assert soon(21) == []
    again = office.asked(until=days(40))
    assert soon(14) == [], "it waits for an answer"
    office.officer.post(f"/v1/requests/{again['id']}/answer", json=GRANT | {"action": "refused"})
    assert soon(14) == [request["id"]]


def test_one_sees_ones_own_requests_only(office: Office) -> None:
    other = office.person("other")
    request = office.asked()
    assert other.get("/v1/requests").json()["items"] == []
    assert_problem(other.get(f"/v1/requests/{request['id']}"), 404)
    assert_problem(other.post(f"/v1/requests/{request['id']}/end", json={"reason": "x"}), 404)
    assert_problem(other.post(f"/v1/requests/{request['id']}/reply", json={"reason": "x"}), 404)
    assert len(office.officer.get("/v1/requests").json()["items"]) == 1
    assert "summer campaign" not in other.get("/v1/changes").text
    assert office.officer.get("/v1/requests", params={"mine": True}).json()["items"] == []
    for _ in range(2):
        office.asked()
    page = office.growth.get("/v1/requests", params={"limit": 2}).json()
    rest = office.growth.get("/v1/requests", params={"limit": 2, "cursor": page["next"]}).json()
    assert [each["id"] for each in (*page["items"], *rest["items"])] == [3, 2, 1]


@pytest.mark.parametrize(
    ("changed", "status"),
    [
        ({"path": "no.such.path"}, 404),
        ({"purpose": ""}, 422),
        ({"until": days(-1)}, 422),
        ({"until": days(LONGEST.days + 1)}, 422),
        ({"until": "2026-12-01T00:00:00"}, 422),
    ],
)
def test_a_request_has_a_purpose_and_an_end(office: Office, changed: dict[str, Any], status: int) -> None:
    body = {"path": AGE["path"], "purpose": "campaign", "until": days(30)} | changed
    assert_problem(office.growth.post("/v1/requests", json=body), status)
    request = office.asked()
    late = GRANT | {"until": days(LONGEST.days + 1)}
    assert_problem(office.officer.post(f"/v1/requests/{request['id']}/answer", json=late), 422)


def test_a_redacted_path_goes_from_requests_too(office: Office) -> None:
    office.asked()
    change = office.admin.post("/v1/redactions", json={"path": AGE["path"]}, params={"reason": "a name"})
    assert change.status_code == 202
    approved = office.officer.post(f"/v1/policy-changes/{change.json()['id']}/approve", json={})
    assert approved.status_code == 200, approved.text
    assert str(AGE["path"]) not in office.growth.get("/v1/requests").text


def test_requests_are_listed_by_state_with_as_many_queries_for_many_as_for_few(office: Office) -> None:
    states: tuple[State, ...] = ("waits", "asked", "granted", "refused", "ended")
    numbers = {state: office.asked()["id"] for state in states}
    for state in states[1:4]:
        body = GRANT | {"action": state}
        office.officer.post(f"/v1/requests/{numbers[state]}/answer", json=body).raise_for_status()
    office.growth.post(f"/v1/requests/{numbers['ended']}/end", json={"reason": "done"}).raise_for_status()

    def listed(state: State | None, at: datetime, limit: int = 10) -> list[int]:
        with office.database.read() as session:
            return [each.id for each in list_grants(session, PageRequest(None, limit), at, state=state).items]

    now = datetime.now(UTC)
    assert {state: listed(state, now) for state in states} == {state: [numbers[state]] for state in states}
    later = now + timedelta(days=31)
    assert listed("granted", later) == []
    assert listed("ended", later) == sorted((numbers["ended"], numbers["granted"]), reverse=True)
    for _ in range(5):
        office.asked()
    executed: list[str] = []
    with office.database.read() as session:
        engine = session.get_bind()
        listening = (engine, "before_cursor_execute", lambda *given: executed.append(given[2]))
        event.listen(*listening)
        list_grants(session, PageRequest(None, 1), now)
        few = len(executed)
        executed.clear()
        assert len(list_grants(session, PageRequest(None, 10), now).items) == 10
        event.remove(*listening)
    assert len(executed) <= few
