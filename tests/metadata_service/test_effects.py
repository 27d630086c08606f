"""What an edit of an attribute would do is said before it is saved, and nothing is stored by asking."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from metadata_service.storage.tokens import Role
from tests.metadata_service.conftest import Running
from tests.metadata_service.made_tokens import create_token

pytestmark = pytest.mark.slow


VIEW = {"name": "payslip", "attributes": {"pay": "payroll.salary"}}
SEGMENT = {"name": "well-paid", "q": "payroll.salary>=1000"}


def declare(service: Running, path: str, **stated: Any) -> None:
    body = {"path": path, "data_type": "number", **stated}
    service.admin.put(f"/v1/attributes/{path}", json=body).raise_for_status()


def effect(service: Running, path: str, **stated: Any) -> dict[str, Any]:
    version = service.reader.get("/v1/snapshot").json()["version"]
    body = {"path": path, "data_type": "number", **stated}
    answer = service.admin.post(f"/v1/attributes/{path}/preview", json=body)
    assert answer.status_code == 200, answer.text
    assert service.reader.get("/v1/snapshot").json()["version"] == version
    found: dict[str, Any] = answer.json()
    for effect in ("loses", "gains", "masked"):
        # Without the people that every test has.
        found[effect] = [each for each in found[effect] if each in ("support", "officer", "the profiles")]
    return found


@pytest.fixture
def payroll(service: Running, spec: dict[str, Any]) -> Running:
    """An attribute that a spec writes, and a view, a segment and a namespace read."""
    declare(service, "payroll.salary")
    operations = [{"operation": "shift", "spec": {"pay": "payroll.salary", "a": "user.id"}}]
    active = spec | {"operations": operations, "status": "active"}
    service.admin.put("/v1/specs/payroll", json=active).raise_for_status()
    service.admin.put("/v1/views/payslip", json=VIEW).raise_for_status()
    service.admin.put("/v1/segments/well-paid", json=SEGMENT).raise_for_status()
    create_token(service.database, "support", Role.PROFILES, clearance=10)
    create_token(service.database, "officer", Role.PROFILES, clearance=90, may_reveal=True)
    return service


def test_protecting_seals_masks_and_takes_a_segment_its_values(payroll: Running) -> None:
    found = effect(payroll, "payroll.salary", encryption="protected", authorization_level=50)
    assert (found["sealed"], found["job"], found["weakens"]) == (["payroll.salary"], "re-encrypt", [])
    assert (found["loses"], found["gains"], found["masked"]) == (["support", "the profiles"], [], [])
    readers = {(each["kind"], each["name"]): each["loses"] for each in found["lineage"]["readers"]}
    assert readers == {("view", "payslip"): False, ("segment", "well-paid"): True}
    assert [each["spec"] for each in found["lineage"]["writers"]] == ["payroll"]
    masked = effect(payroll, "payroll.salary", encryption="protected")
    assert (masked["loses"], masked["masked"]) == ([], ["support", "the profiles"])


def test_opening_needs_a_second_person_and_leaves_what_is_sealed(payroll: Running) -> None:
    declare(payroll, "payroll.salary", encryption="protected", authorization_level=50)
    found = effect(payroll, "payroll.salary", encryption="none")
    assert found["weakens"]
    assert (found["opened"], found["sealed"], found["job"]) == (["payroll.salary"], [], None)
    assert found["reindexed"] == ["payroll.salary"], "for values that nobody sealed while it was protected"
    assert found["gains"] == ["support", "the profiles"]


def test_what_is_below_is_counted_in(payroll: Running) -> None:
    for path in ("pay.base", "pay.bonus"):
        change = {"path": path, "data_type": "number", "source": "hr", "first_event": "hr/0/1"}
        payroll.pipeline.patch("/v1/schema", json={"changes": [change]}).raise_for_status()
    found = effect(payroll, "pay", encryption="protected")
    assert found["sealed"] == ["pay", "pay.base", "pay.bonus"]
    assert effect(payroll, "pay.base", indexable=False)["reindexed"] == ["pay.base"]


def test_words_have_no_consequences(payroll: Running) -> None:
    found = effect(payroll, "payroll.salary", name="Salary")
    assert [each["name"] for each in found["changes"]] == ["name"]
    assert not any(found[each] for each in ("weakens", "sealed", "opened", "reindexed", "gains", "loses"))


def test_an_identifier_is_read_by_its_namespace(payroll: Running) -> None:
    declare(payroll, "user.id", data_type="string")
    found = payroll.reader.get("/v1/attributes/user.id/lineage").json()
    assert [(each["kind"], each["name"]) for each in found["readers"]] == [("namespace", "user_id")]
    assert payroll.reader.get("/v1/attributes/nobody/lineage").status_code == 404


def test_the_last_day_of_an_attribute_is_known(payroll: Running) -> None:
    def lineage() -> Any:
        return payroll.reader.get("/v1/attributes/payroll.salary/lineage").json()["last_seen"]

    assert lineage() is None
    version = payroll.reader.get("/v1/attributes/payroll.salary").headers["ETag"]
    change = {"path": "payroll.salary", "data_type": "integer", "source": "hr", "first_event": "hr/0/1"}
    answer = payroll.pipeline.patch("/v1/schema", json={"changes": [change]}).json()
    assert answer["unchanged"] == 1
    assert lineage() == f"{datetime.now(UTC):%Y-%m-%d}"
    assert payroll.reader.get("/v1/attributes/payroll.salary").headers["ETag"] == version
    declare(payroll, "payroll.salary", name="Salary")
    assert lineage() is not None


def test_what_cannot_be_saved_has_no_effect(payroll: Running) -> None:
    body = {"path": "payroll.salary", "data_type": "number", "encryption": "protected", "policy": "sum"}
    answer = payroll.admin.post("/v1/attributes/payroll.salary/preview", json=body)
    assert (answer.status_code, answer.json()["pointer"]) == (422, "/policy")
    assert payroll.reader.post("/v1/attributes/payroll.salary/preview", json=body).status_code == 403


def test_the_lineage_goes_through_derived_attributes(payroll: Running) -> None:
    activity = {"name": "raise", "fields": {"pay": "payroll.salary"}}
    top = {"activity": "raise", "function": "max", "field": "pay"}
    payroll.admin.put("/v1/activities/raise", json=activity).raise_for_status()
    kinds: dict[str, dict[str, Any]] = {
        "topPay": {"window": top},
        "isRich": {"expression": "d.topPay > `9`"},
    }
    for name, content in kinds.items():
        definition = {"name": name, "path": f"d.{name}", **content}
        payroll.admin.put(f"/v1/derived-attributes/{name}", json=definition).raise_for_status()
    segment = {"name": "rich", "q": "d.isRich=true"}
    payroll.admin.put("/v1/segments/rich", json=segment).raise_for_status()

    def lineage(path: str) -> dict[str, Any]:
        found: dict[str, Any] = payroll.reader.get(f"/v1/attributes/{path}/lineage").json()
        return found

    readers = {each["name"]: each["through"] for each in lineage("payroll.salary")["readers"]}
    assert readers == {
        "payslip": [],
        "well-paid": [],
        "raise": [],
        "topPay": ["raise"],
        "isRich": ["raise", "topPay"],
        "rich": ["raise", "topPay", "isRich"],
    }
    below = lineage("d.isRich")
    (writer,) = below["writers"]
    assert (writer["spec"], writer["through"]) == ("payroll", ["raise", "topPay", "isRich"])
    assert [(each["kind"], each["name"], each["through"]) for each in below["readers"]] == [
        ("segment", "rich", [])
    ]
    (writer,) = lineage("d.topPay")["writers"]
    assert writer["through"] == ["raise", "topPay"]
