"""A path that is made of a value goes from catalogue, history and snapshot, by two persons; the history stays whole."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from tests.canaries import places
from tests.metadata_service.conftest import Running
from tests.metadata_service.test_policy_changes import bob, decide, put  # noqa: F401 - a fixture
from tests.metadata_service.test_proposals import change, patched

pytestmark = pytest.mark.slow


CANARY = "HIV positive"
LEAKED = f"seen.NAME.{CANARY}"


def everything(service: Running) -> str:
    """All that a reader gets, and all that the database holds."""
    pages = ["/v1/snapshot", "/v1/catalogue", "/v1/attributes", "/v1/changes", "/v1/policy-changes"]
    said = [service.reader.get(page).text for page in pages]
    with service.database.engine.connect() as connection:
        for table in ("changes", "attributes", "attribute_versions", "requests", "spec_uses"):
            said += [str(row) for row in connection.execute(text(f"SELECT * FROM {table}"))]
    return "\n".join(said)


def request(service: Running, path: str) -> httpx.Response:
    return service.admin.post("/v1/redactions?reason=erasure+4711", json={"path": path})


@pytest.fixture
def leaked(service: Running) -> Running:
    patched(service, change(None, "kept"), change(None, LEAKED), change(None, f"{LEAKED}.since"))
    patched(service, change(None, LEAKED, data_type="integer"))
    assert put(service, LEAKED, None, description=CANARY).status_code == 200
    assert put(service, LEAKED, "protected").status_code == 200
    assert put(service, LEAKED, "none").status_code == 202
    assert everything(service).count(CANARY) > 10
    return service


def test_a_path_is_redacted_by_two(leaked: Running, bob: httpx.Client) -> None:  # noqa: F811
    etag = leaked.reader.get("/v1/snapshot").headers["ETag"]
    before = leaked.reader.get("/v1/changes").json()["items"]
    assert leaked.reader.post("/v1/redactions", json={"path": LEAKED}).status_code == 403
    assert request(leaked, "nothing.here").status_code == 404
    answer = request(leaked, "seen.NAME")
    assert answer.status_code == 202
    # The second person reads too what protection goes with them.
    assert answer.json()["weakens"] == [
        *(f"redacts {each}" for each in (LEAKED, f"{LEAKED}.since")),
        *(f"opens {each}: protected to none" for each in (LEAKED, f"{LEAKED}.since")),
    ]
    number = answer.json()["id"]
    assert decide(leaked.admin, number, "approve").status_code == 409
    assert CANARY in everything(leaked)
    approved = decide(bob, number, "approve")
    assert approved.status_code == 200, approved.text
    assert CANARY not in everything(leaked) + approved.text
    assert "NAME" not in everything(leaked)
    assert leaked.reader.get("/v1/snapshot").json()["attributes"] == []
    assert [each["path"] for each in leaked.reader.get("/v1/catalogue").json()["attributes"]] == ["kept"]
    # A flow that knows the path reads the whole again.
    assert leaked.reader.get("/v1/snapshot", headers={"If-None-Match": etag}).status_code == 200
    after = leaked.reader.get("/v1/changes").json()["items"]
    assert [shape(each) for each in after[-len(before) :]] == [shape(each) for each in before]
    subjects = {each["subject"] for each in after if each["subject"].startswith("redacted.")}
    assert len(subjects) == 3
    # A request that was waiting for the same attribute cannot be carried out any more.
    (pending,) = leaked.reader.get("/v1/policy-changes?status=pending").json()["items"]
    assert decide(bob, pending["id"], "approve").status_code == 409


def test_a_late_sight_of_a_redacted_path_does_not_bring_it_back(
    leaked: Running,
    bob: httpx.Client,  # noqa: F811
) -> None:
    number = request(leaked, "seen.NAME").json()["id"]
    assert decide(bob, number, "approve").status_code == 200
    found = patched(leaked, change(None, LEAKED, seen=True), change(None, "kept", seen=True))
    assert (found["created"], found["unchanged"]) == (0, 2)
    assert CANARY not in everything(leaked)
    seen = [leaked.reader.get(f"/v1/attributes/{path}/lineage") for path in (LEAKED, "kept")]
    assert (seen[0].status_code, seen[1].json()["last_seen"] is None) == (404, False)


def shape(change: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(
        change[name] for name in ("id", "kind", "action", "actor", "at", "reason", "subject_version")
    )


def test_it_is_a_new_path_when_it_comes_again(leaked: Running, bob: httpx.Client) -> None:  # noqa: F811
    decide(bob, request(leaked, LEAKED).json()["id"], "approve")
    patched(leaked, change(None, LEAKED))
    (found,) = [
        each for each in leaked.reader.get("/v1/attributes").json()["items"] if "NAME" in each["path"]
    ]
    assert (found["version"], found["status"], found["description"]) == (1, "discovered", "")


def test_fields_of_the_input_go_too_and_are_not_taken_again(
    leaked: Running,
    bob: httpx.Client,  # noqa: F811
    spec: dict[str, Any],
) -> None:
    """Found by review: an unread field with the value as a key stayed, and flows reported it again."""
    leaked.admin.put(f"/v1/specs/{spec['name']}", json=spec | {"status": "active"}).raise_for_status()
    used = {"spec": spec["name"], "version": 1, "source": "shop", "last_used": 1_709_251_200_000}
    fields = dict.fromkeys(["/seen/NAME/at", f"/by/{CANARY}", "/members/Zebulon/since", "/sentAt"], False)

    def report() -> list[str]:
        content = {"changes": [], "uses": [used | {"fields": fields}]}
        leaked.pipeline.patch("/v1/schema", json=content).raise_for_status()
        unread: list[str] = leaked.reader.get("/v1/spec-health").json()["items"][0]["uses"][0]["unread"]
        return unread

    assert report() == sorted(fields)
    assert request(leaked, "/members/Ann").status_code == 404
    answer = request(leaked, "/members/Zebulon")
    assert answer.json()["weakens"] == ["redacts /members/Zebulon/since"]
    assert decide(bob, answer.json()["id"], "approve").status_code == 200
    assert "Zebulon" not in everything(leaked) + leaked.reader.get("/v1/policy-changes").text
    assert decide(bob, request(leaked, "seen.NAME").json()["id"], "approve").status_code == 200
    assert report() == ["/sentAt"]


def test_a_field_of_any_length_is_redacted(service: Running, bob: httpx.Client) -> None:  # noqa: F811
    """Found on PostgreSQL: an index had no room for the longest fields."""
    field = "/" + "".join(map(chr, random.Random(1).choices(range(0x4E00, 0x9FFF), k=999)))
    used = {"spec": None, "source": "shop", "last_used": 1_709_251_200_000, "fields": {field: False}}
    service.pipeline.patch("/v1/schema", json={"changes": [], "uses": [used]}).raise_for_status()
    answer = request(service, field)
    assert answer.status_code == 202, answer.text
    assert decide(bob, answer.json()["id"], "approve").status_code == 200
    assert json.dumps(field)[1:-1] not in everything(service)
    assert field not in everything(service)


def test_nothing_is_left_in_the_files(leaked: Running, bob: httpx.Client) -> None:  # noqa: F811
    decide(bob, request(leaked, "seen").json()["id"], "approve")
    if leaked.database_url.startswith("sqlite"):
        assert places(Path(leaked.database_url.removeprefix("sqlite:///")).parent, (CANARY,)) == []
