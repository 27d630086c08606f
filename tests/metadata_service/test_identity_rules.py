"""Identity rules in the metadata service: versions, conditional edits, what is refused and where."""

from __future__ import annotations

from typing import Any

import pytest

from idgraph.model.identity_rules import DEFAULT_RULES, SHOP_RULES, IdentityRules
from idgraph.model.snapshots import MetadataSnapshot
from tests.metadata_service.conftest import Running

URL = "/v1/identity-rules"


def test_the_default_rules_hold_until_somebody_changes_them(service: Running) -> None:
    answer = service.reader.get(URL).json()
    assert answer == {"version": 0, "document": SHOP_RULES}
    assert "identity_rules" not in service.reader.get("/v1/snapshot").json()
    assert service.admin.put(URL, json=SHOP_RULES).json()["version"] == 0
    assert service.reader.get(f"{URL}/versions").json()["items"] == []


def test_rules_are_edits_with_a_history_and_are_in_the_snapshot(service: Running) -> None:
    first = service.reader.get(URL)
    known = {"If-Match": first.headers["ETag"]}
    rules = SHOP_RULES | {"hub_limit": 20}
    saved = service.admin.put(f"{URL}?reason=kiosks", json=rules, headers=known)
    assert (saved.status_code, saved.json()) == (200, {"version": 1, "document": rules})
    assert service.reader.get(URL, headers={"If-None-Match": saved.headers["ETag"]}).status_code == 304
    assert service.admin.put(URL, json={}, headers=known).status_code == 412
    for client in (service.pipeline, service.reader):
        assert client.put(URL, json=rules).status_code == 403
    assert service.admin.put(URL, json=rules).json()["version"] == 1

    def of_snapshot() -> tuple[IdentityRules, int]:
        snapshot = MetadataSnapshot.model_validate_json(service.reader.get("/v1/snapshot").content)
        return snapshot.identity_rules, snapshot.identity_rules_version

    assert of_snapshot() == (IdentityRules.model_validate(rules), 1)
    service.admin.put(f"{URL}?reason=back", json=SHOP_RULES)
    assert of_snapshot() == (DEFAULT_RULES, 2)
    listed = service.reader.get(f"{URL}/versions?limit=1").json()
    assert [(each["version"], each["reason"]) for each in listed["items"]] == [(2, "back")]
    rest = service.reader.get(f"{URL}/versions", params={"cursor": listed["next"]}).json()
    assert [(each["version"], each["reason"], each["document"]) for each in rest["items"]] == [
        (1, "kiosks", rules)
    ]
    assert service.reader.get(f"{URL}/versions/1").json() == rest["items"][0]
    assert service.reader.get(f"{URL}/versions/3").status_code == 404
    lines = service.reader.get("/v1/changes?kind=identity_rules").json()["items"]
    assert [(each["subject_version"], each["action"], each["reason"]) for each in lines] == [
        (2, "saved", "back"),
        (1, "saved", "kiosks"),
    ]


@pytest.mark.parametrize(
    ("rules", "pointer"),
    [
        ({"limits": [{"namespace": "card", "max": 2}]}, "/limits/0/namespace"),
        (
            {"namespaces": {"a": {}}, "limits": [{"namespaces": ["a", "b"], "max": 2}]},
            "/limits/0/namespaces/1",
        ),
        ({"namespaces": {"a": {}}, "limits": [{"namespaces": ["a", "a"], "max": 2}]}, "/limits/0/namespaces"),
        ({"namespaces": {"email": {"connects": {"user": 1}}}}, "/namespaces/email/connects/user"),
        ({"blocked": [{"namespace": "email", "value": "x"}]}, "/blocked/0/namespace"),
        ({"blocked": [{"value": " x"}]}, "/blocked/0/value"),
        ({"blocked": [{"pattern": "("}]}, "/blocked/0/pattern"),
        ({"blocked": [{"value": "x"}, {"pattern": "(a+)+$"}]}, "/blocked/1/pattern"),
        ({"blocked": [{"pattern": r"(a)\1"}]}, "/blocked/0/pattern"),
        ({"namespaces": {"user": {"uniqe": True}}}, "/namespaces/user/uniqe"),
        ({"namespaces": {"user": {"unique": True, "max": 2}}}, "/namespaces/user"),
        ({"namespaces": {"user": {"moves": "latest", "owner": "none"}}}, "/namespaces/user"),
        ({"namespaces": {"cart": {"counted": False, "max": 2}}}, "/namespaces/cart"),
        ({"namespaces": {"a": {"connects": {"cart": 1}}, "cart": {"counted": False}}}, ""),
        ({"namespaces": {"cart": {"counted": False}}, "limits": [{"namespace": "cart", "max": 1}]}, ""),
        ({"hub_limit": 0}, "/hub_limit"),
        ({"strength": {"crm": -1}}, "/strength/crm"),
        ({"limits": [{"max": 1}]}, "/limits/0"),
    ],
)
def test_what_cannot_work_is_refused_with_the_place(
    service: Running, rules: dict[str, Any], pointer: str
) -> None:
    for answer in (service.admin.put(URL, json=rules), service.admin.post(f"{URL}/check", json=rules)):
        assert (answer.status_code, answer.json().get("pointer")) == (422, pointer), answer.text
    assert service.reader.get(URL).json()["version"] == 0


def test_two_namespaces_may_have_one_priority(service: Running) -> None:
    rules = {"namespaces": {"a": {"priority": 1}, "b": {"priority": 1}}}
    assert service.admin.post(f"{URL}/check", json=rules).json() == {"valid": True, "warnings": []}
    assert service.admin.put(URL, json=rules).json()["version"] == 1
