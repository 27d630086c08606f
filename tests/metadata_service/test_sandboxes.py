"""Sandboxes over REST: a copy without people, what differs, promotion by the rights of each edit, deletion."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from idgraph.signatures import ServiceKey
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.database import Database
from metadata_service.storage.tokens import Role
from tests.metadata_service.conftest import sqlite_url
from tests.metadata_service.made_tokens import create_token

pytestmark = pytest.mark.slow


SPEC: dict[str, Any] = {
    "name": "shop", "source": "shop", "event_type": "order", "status": "active",
    "operations": [{"operation": "shift", "spec": {"a": "user.id"}}],
    "identifiers": [{"type": "user_id", "path": "user.id", "primary": True}],
}  # fmt: skip
AGE: dict[str, Any] = {
    "path": "person.age",
    "data_type": "integer",
    "status": "active",
    "encryption": "protected",
}
EDITED_SPEC = SPEC | {"operations": [{"operation": "shift", "spec": {"a": "user.id", "b": "user.name"}}]}
VIEW = {"name": "card", "attributes": {"age": "person.age"}}
SEGMENT = {"name": "old", "q": "person.name=x"}
RULES = {"namespaces": {"user_id": {}}, "hub_limit": 20}


class Site(NamedTuple):
    folder: Path
    production: Database
    admin: httpx.Client
    publisher: httpx.Client
    second: httpx.Client
    sandbox: Callable[[str], httpx.Client]


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    with ExitStack() as stack:

        def serve(settings: ServiceSettings, names: dict[str, Role]) -> tuple[Database, list[httpx.Client]]:
            app = create_app(settings)
            database = app.state.service.database
            tokens = [create_token(database, name, role) for name, role in names.items()]
            url = stack.enter_context(serving(app))
            return database, [
                stack.enter_context(
                    httpx.Client(
                        base_url=url, headers={"Authorization": f"Bearer {each}"}, timeout=60, verify=False
                    )
                )
                for each in tokens
            ]

        def sandbox(name: str) -> httpx.Client:
            place = tmp_path / "sandboxes" / name
            key = ServiceKey(place / "metadata.key")
            return serve(ServiceSettings(sqlite_url(place), key, sandbox=name), {"me": Role.ADMIN})[1][0]

        key = ServiceKey(tmp_path / "metadata.key")
        production, clients = serve(
            ServiceSettings(sqlite_url(tmp_path), key, sandboxes=tmp_path / "sandboxes"),
            {"admin": Role.ADMIN, "publisher": Role.PUBLISHER, "second": Role.ADMIN},
        )
        put(clients[0], "/v1/attributes/person.age", AGE)
        put(clients[0], "/v1/attributes/person.seen", {"path": "person.seen", "data_type": "string"})
        put(clients[0], "/v1/specs/shop", SPEC)
        put(clients[0], "/v1/views/card", VIEW)
        put(clients[0], "/v1/segments/old", SEGMENT)
        admin, publisher, second = clients
        yield Site(tmp_path / "sandboxes", production, admin, publisher, second, sandbox)


def put(client: httpx.Client, path: str, body: Any, expected: int | None = None) -> None:
    answer = client.put(path, json=body)
    assert answer.is_success if expected is None else answer.status_code == expected, answer.text


def made(client: httpx.Client, name: str = "try") -> dict[str, Any]:
    answer = client.post("/v1/sandboxes", json={"name": name, "reason": "a try"})
    assert answer.status_code == httpx.codes.CREATED, answer.text
    return dict(answer.json())


def states(client: httpx.Client, name: str = "try") -> dict[tuple[str, str], str]:
    found = client.get(f"/v1/sandboxes/{name}/comparison").raise_for_status().json()
    return {(each["kind"], each["name"]): each["state"] for each in found["items"]}


def test_a_copy_has_what_is_in_force_and_no_people(site: Site) -> None:
    put(site.admin, "/v1/specs/shop", EDITED_SPEC | {"status": "draft"})
    record = made(site.admin)
    assert (record["number"], record["actor"]) == (1, "admin")
    copy = site.sandbox("try")
    kept = {"specs", "attributes", "defaults", "levels", "views", "segments"}
    of_production, of_copy = (each.get("/v1/snapshot").json() for each in (site.admin, copy))
    for name in kept:
        assert [without_time(each) for each in listed(of_copy[name])] == [
            without_time(each) for each in listed(of_production[name])
        ]
    assert copy.get("/v1/specs/shop").json()["latest_version"] == 2
    assert states(site.admin) == {}
    listed_here = [each["name"] for each in copy.get("/v1/callers").json()["callers"]]
    assert listed_here == ["me"]
    assert copy.post("/v1/changes/verify").json()["broken_version"] is None
    for client, status in ((copy, 409), (site.publisher, 409)):
        assert client.post("/v1/sandboxes", json={"name": "try"}).status_code == status
    assert site.admin.post("/v1/sandboxes", json={"name": "../x"}).status_code == 422
    assert [each["name"] for each in site.admin.get("/v1/sandboxes").json()["items"]] == ["try"]
    assert copy.get("/v1/sandboxes").json() == {"items": []}


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def without_time(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != "created"}


def test_edits_are_compared_and_promoted_with_who_and_why(site: Site) -> None:
    made(site.admin)
    copy = site.sandbox("try")
    put(copy, "/v1/specs/shop", EDITED_SPEC)
    put(copy, "/v1/attributes/person.name", {"path": "person.name", "data_type": "string"})
    put(copy, "/v1/views/card", VIEW | {"attributes": {"years": "person.age"}})
    put(copy, "/v1/segments/old", SEGMENT | {"status": "retired"})
    put(copy, "/v1/identity-rules", RULES)
    put(site.admin, "/v1/attributes/person.seen", {"path": "person.seen", "data_type": "integer"})
    assert states(site.publisher) == {
        ("attribute", "person.name"): "added",
        ("attribute", "person.seen"): "behind",
        ("spec", "shop"): "changed",
        ("identity_rules", ""): "changed",
        ("view", "card"): "changed",
        ("segment", "old"): "changed",
    }
    place = "/v1/sandboxes/try/promote"
    planned = site.publisher.post(place, json={"dry_run": True}).json()["items"]
    assert {each["outcome"] for each in planned} == {"planned"}
    assert len(states(site.admin)) == 6
    answer = site.publisher.post(place, json={"reason": "it is good"}).raise_for_status()
    assert [each["kind"] for each in answer.json()["items"]] == [
        "attribute", "spec", "identity_rules", "view", "segment",
    ]  # fmt: skip
    assert {each["outcome"] for each in answer.json()["items"]} == {"published"}, answer.text
    assert states(site.admin) == {("attribute", "person.seen"): "behind"}
    changes = site.admin.get("/v1/changes").json()["items"]
    published = [each for each in changes if each["actor"] == "publisher"]
    assert len(published) >= 5
    assert all("sandbox try" in each["reason"] and "it is good" in each["reason"] for each in published)
    in_force = site.admin.get("/v1/specs/shop").json()
    assert in_force["active_version"] == in_force["latest_version"] == 2


def test_a_weakening_edit_is_left_out_or_waits_for_a_second_person(site: Site) -> None:
    made(site.admin)
    copy = site.sandbox("try")
    put(copy, "/v1/attributes/person.age", AGE | {"encryption": "none"}, 202)
    (change,) = copy.get("/v1/policy-changes").json()["items"]
    assert copy.post(f"/v1/policy-changes/{change['id']}/approve", json={}).status_code == 409
    # As another person in the sandbox would.
    with ExitStack() as stack:
        app = create_app(
            ServiceSettings(sqlite_url(site.folder / "try"), ServiceKey(site.folder / "try" / "metadata.key"))
        )
        other = create_token(app.state.service.database, "other", Role.ADMIN)
        url = stack.enter_context(serving(app))
        answer = httpx.post(
            f"{url}/v1/policy-changes/{change['id']}/approve",
            json={},
            headers={"Authorization": f"Bearer {other}"},
        )
        assert answer.is_success, answer.text
    found = site.admin.get("/v1/sandboxes/try/comparison").json()["items"]
    assert [(each["name"], bool(each["weakens"])) for each in found] == [("person.age", True)]
    place = "/v1/sandboxes/try/promote"
    assert site.admin.post(place, json={}).json() == {"items": []}
    chosen = {"items": [{"kind": "attribute", "name": "person.age"}], "reason": "an export"}
    (refused,) = site.publisher.post(place, json=chosen).json()["items"]
    assert refused["outcome"] == "refused"
    (waits,) = site.admin.post(place, json=chosen).json()["items"]
    assert waits["outcome"] == "waits"
    assert site.admin.get("/v1/attributes/person.age").json()["encryption"] == "protected"
    assert site.second.post(f"{waits['detail']}/approve", json={}).is_success
    assert site.admin.get("/v1/attributes/person.age").json()["encryption"] == "none"
    assert states(site.admin) == {}


def test_what_moved_on_in_production_is_refused_with_both_contents(site: Site) -> None:
    made(site.admin)
    copy = site.sandbox("try")
    put(copy, "/v1/specs/shop", EDITED_SPEC)
    put(copy, "/v1/views/card", VIEW | {"description": "here"})
    put(site.admin, "/v1/specs/shop", SPEC | {"description": "there"})
    found = site.admin.get("/v1/sandboxes/try/comparison").json()["items"]
    conflict = next(each for each in found if each["kind"] == "spec")
    assert conflict["state"] == "conflict"
    assert conflict["production"]["description"] == "there"
    assert conflict["sandbox"]["operations"] == EDITED_SPEC["operations"]
    chosen = [{"kind": each["kind"], "name": each["name"]} for each in found]
    answer = site.admin.post("/v1/sandboxes/try/promote", json={"items": chosen})
    assert answer.status_code == httpx.codes.CONFLICT
    # Nothing of it is published; by default only what can be is.
    assert site.admin.get("/v1/views/card").json()["description"] == ""
    (done,) = site.admin.post("/v1/sandboxes/try/promote", json={}).json()["items"]
    assert (done["kind"], done["outcome"]) == ("view", "published")
    assert site.admin.get("/v1/specs/shop").json()["document"]["description"] == "there"
    unknown = {"items": [{"kind": "view", "name": "card"}]}
    assert site.admin.post("/v1/sandboxes/try/promote", json=unknown).status_code == 404


def test_each_item_is_promoted_by_the_right_to_publish_it(site: Site) -> None:
    made(site.publisher)
    put(site.sandbox("try"), "/v1/discovery-defaults", {"classification": "confidential"})
    answer = site.publisher.post("/v1/sandboxes/try/promote", json={})
    assert answer.status_code == httpx.codes.FORBIDDEN
    assert site.admin.post("/v1/sandboxes/try/promote", json={}).json()["items"][0]["outcome"] == "published"


def test_an_admin_promotes_a_definition_with_its_model(site: Site) -> None:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'idgraph[models]'")
    from tests.transforms.behaviour.onnx_models import digest, linear

    made(site.admin)
    content = linear([1])
    copy = site.sandbox("try")
    headers = {"Content-Type": "application/octet-stream"}
    assert copy.post("/v1/models", content=content, headers=headers).status_code == 201
    model = {"digest": digest(content), "inputs": [{"path": "a"}]}
    put(copy, "/v1/derived-attributes/score", {"name": "score", "path": "score", "model": model})
    items = [
        {"kind": each["kind"], "name": each["name"]}
        for each in site.admin.get("/v1/sandboxes/try/comparison").json()["items"]
        if each["kind"] == "derived_attribute"
    ]
    asked = {"items": items, "reason": "it is good"}
    (refused,) = site.publisher.post("/v1/sandboxes/try/promote", json=asked).json()["items"]
    assert "there is no model with this digest" in refused["detail"]
    (done,) = site.admin.post("/v1/sandboxes/try/promote", json=asked).json()["items"]
    assert done["outcome"] == "published", done
    assert site.admin.get(f"/v1/models/{digest(content)}").content == content


def test_a_deleted_sandbox_leaves_nothing(site: Site) -> None:
    made(site.admin)
    (site.folder / "try" / "keyring.json").write_text("{}")
    assert site.admin.delete("/v1/sandboxes/other").status_code == 404
    assert site.admin.delete("/v1/sandboxes/try", params={"reason": "done"}).status_code == 204
    assert list(site.folder.iterdir()) == []
    changes = site.admin.get("/v1/changes", params={"kind": "sandbox"}).json()["items"]
    assert [(each["subject"], each["action"]) for each in changes] == [("try", "deleted"), ("try", "made")]
    assert made(site.admin)["number"] == 1


def test_an_interrupted_copy_is_no_sandbox(site: Site) -> None:
    (site.folder / "try").mkdir(parents=True)
    (site.folder / "try" / "metadata.db").write_text("half")
    assert site.admin.get("/v1/sandboxes").json() == {"items": []}
    assert made(site.admin)["name"] == "try"


def test_two_who_make_one_at_once_share_neither_name_nor_ports(site: Site) -> None:
    """Found by review: the second removed the folder that the first was writing."""
    names = ["one", "one", "two", "one", "three"]
    with ThreadPoolExecutor(len(names)) as pool:
        made = list(pool.map(lambda name: site.admin.post("/v1/sandboxes", json={"name": name}), names))
    assert sorted(each.status_code for each in made) == [201, 201, 201, 409, 409]
    known = site.admin.get("/v1/sandboxes").json()["items"]
    assert [each["name"] for each in known] == ["one", "three", "two"]
    assert len({each["number"] for each in known}) == 3
    for each in known:
        assert site.admin.get(f"/v1/sandboxes/{each['name']}/comparison").json()["items"] == []
