"""Edits of many attributes at once, each with its own result; and what is new."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from tests.metadata_service.conftest import Running
from tests.metadata_service.test_undecided import seen


def act(service: Running, name: str, *chosen: tuple[str, int], **more: Any) -> dict[str, dict[str, Any]]:
    body = {
        "act": name,
        "reason": "reviewed",
        "attributes": [{"path": path, "version": version} for path, version in chosen],
    }
    answer = service.admin.post("/v1/attribute-edits", json=body | more)
    assert answer.status_code == 200, answer.text
    return {each["path"]: each for each in answer.json()["results"]}


def attribute(service: Running, path: str) -> dict[str, Any]:
    found: dict[str, Any] = service.reader.get(f"/v1/attributes/{path}").json()
    return found


def test_each_has_its_own_result(service: Running) -> None:
    seen(service, "a", "b", "c")
    service.admin.put("/v1/attributes/b", json={"path": "b", "data_type": "string"}).raise_for_status()
    done = act(service, "promote", ("a", 1), ("b", 1), ("none", 1), ("c", 1))
    assert {path: each["result"] for path, each in done.items()} == {
        "a": "saved",
        "b": "refused",
        "none": "refused",
        "c": "saved",
    }
    assert "meanwhile" in done["b"]["problem"]
    assert attribute(service, "a")["status"] == "active"
    assert act(service, "promote", ("a", 2))["a"]["result"] == "unchanged"
    (line, *_) = service.reader.get("/v1/attributes/a/versions").json()["items"]
    assert (line["reason"], line["actor"]) == ("reviewed", "the admin")
    assert act(service, "reject", ("a", 2))["a"]["result"] == "saved"
    assert attribute(service, "a")["status"] == "retired"


def test_a_classification_protects_and_never_opens(service: Running) -> None:
    seen(service, "a")
    stated = {"path": "b", "data_type": "string", "classification": "restricted"}
    service.admin.put("/v1/attributes/b", json=stated).raise_for_status()
    done = act(service, "classify", ("a", 1), ("b", 1), classification="confidential")
    assert done["a"]["result"] == "saved"
    assert (attribute(service, "a")["encryption"], attribute(service, "a")["authorization_level"]) == (
        "protected",
        50,
    )
    assert done["b"]["result"] == "waits", "the classification of a decided one falls"
    change = service.reader.get(f"/v1/policy-changes/{done['b']['change']}").json()
    assert change["document"]["encryption"] == "protected"


@pytest.mark.parametrize(
    "body",
    [
        {"act": "promote", "attributes": [{"path": "a", "version": 1}]},
        {"act": "classify", "reason": "x", "attributes": [{"path": "a", "version": 1}]},
        {
            "act": "promote",
            "classification": "public",
            "reason": "x",
            "attributes": [{"path": "a", "version": 1}],
        },
        {"act": "promote", "reason": "x", "attributes": []},
    ],
)
def test_what_is_not_whole_is_refused(service: Running, body: dict[str, Any]) -> None:
    assert service.admin.post("/v1/attribute-edits", json=body).status_code == 422


def test_words_find_sources_and_classifications(service: Running) -> None:
    seen(service, "a", source="webshop")
    seen(service, "b", source="crm")
    act(service, "classify", ("b", 1), classification="restricted")

    def found(q: str) -> list[str]:
        answer = service.reader.get("/v1/attributes", params={"q": q})
        return [each["path"] for each in answer.json()["items"]]

    assert (found("webshop"), found("restricted crm")) == (["a"], ["b"])


def test_new_attributes_are_listed_since_a_state(service: Running) -> None:
    seen(service, "old")
    state = service.reader.get("/v1/attribute-events").json()
    assert (state["paths"], state["is_all"]) == ([], True)
    assert service.reader.get("/v1/attribute-events", params={"since": state["etag"]}).json()["paths"] == []
    seen(service, "a", "b")
    seen(service, "a", "c")
    later = service.reader.get("/v1/attribute-events", params={"since": state["etag"]}).json()
    assert set(later["paths"]) == {"a", "b", "c"}
    assert later["paths"][0] == "c"
    assert service.reader.get("/v1/attribute-events", params={"since": '"1-other"'}).json()["paths"] == []


def test_whoever_waits_is_answered_when_an_event_brings_one(service: Running) -> None:
    state = service.reader.get("/v1/attribute-events").json()["etag"]
    found: list[Any] = []

    def wait() -> None:
        with httpx.Client(base_url=service.url, headers=dict(service.reader.headers), timeout=60) as client:
            answer = client.get("/v1/attribute-events", params={"since": state, "wait": 50})
            found.append(answer.json()["paths"])

    waiting = threading.Thread(target=wait)
    waiting.start()
    seen(service, "a")
    waiting.join(timeout=60)
    assert found == [["a"]]
