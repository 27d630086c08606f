from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from idgraph.model.errors import SpecError
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.specs import SpecDefinition
from metadata_service.specs.rules import check_spec, packaged_compiler
from tests.metadata_service.conftest import Running

pytestmark = pytest.mark.slow


Spec = dict[str, Any]


def put(service: Running, spec: Spec, status: int = 200, **headers: str) -> Any:
    answer = service.admin.put(f"/v1/specs/{spec['name']}", json=spec, headers=headers)
    assert answer.status_code == status, answer.text
    return answer.json()


def set_status(service: Running, name: str, expected: int = 200, **body: Any) -> Any:
    answer = service.admin.post(f"/v1/specs/{name}/status", json=body)
    assert answer.status_code == expected, answer.text
    return answer.json()


def active(service: Running) -> list[str]:
    snapshot = MetadataSnapshot.model_validate_json(service.reader.get("/v1/snapshot").content)
    return [str(spec.ref) for spec in snapshot.specs]


def test_evidence_and_retractions_are_part_of_a_version(service: Running, spec: Spec) -> None:
    stated = {
        "identifiers": [*spec["identifiers"], {"type": "email", "path": "user.mail"}],
        "evidence": {"links": [["email", "user_id"]], "strength": 0.5},
        "retracts": "user.undone",
    }
    put(service, spec | stated | {"status": "active"}, 201)
    assert put(service, spec | stated)["latest_version"] == 1
    snapshot = MetadataSnapshot.model_validate_json(service.reader.get("/v1/snapshot").content)
    evidence, retracts = snapshot.specs[0].evidence, snapshot.specs[0].retracts
    assert evidence is not None
    assert (evidence.links, evidence.strength, retracts) == ((("email", "user_id"),), 0.5, "user.undone")
    assert put(service, spec | stated | {"evidence": {"links": []}})["latest_version"] == 2


def statuses(service: Running, name: str) -> dict[int, str]:
    items = service.reader.get(f"/v1/specs/{name}/versions").json()["items"]
    return {item["document"]["version"]: item["document"]["status"] for item in items}


def test_versions_are_stored_activated_rolled_back_and_retired(service: Running, spec: Spec) -> None:
    put(service, spec, 201)
    assert active(service) == []
    assert set_status(service, "payroll", status="active")["active_version"] == 1
    put(service, spec | {"description": "better"})
    assert active(service) == ["payroll@1"]
    set_status(service, "payroll", status="active", version=2, reason="tested")
    assert active(service) == ["payroll@2"]
    assert statuses(service, "payroll") == {1: "retired", 2: "active"}
    set_status(service, "payroll", status="active", version=1, reason="it lost events")
    assert active(service) == ["payroll@1"]
    assert set_status(service, "payroll", status="retired")["active_version"] is None
    assert active(service) == []
    assert statuses(service, "payroll") == {1: "retired", 2: "retired"}
    log = service.reader.get("/v1/changes", params={"subject": "payroll", "kind": "spec"}).json()["items"]
    assert [(line["action"], line["subject_version"], line["reason"]) for line in reversed(log)] == [
        ("saved", 1, ""),
        ("activated", 1, ""),
        ("saved", 2, ""),
        ("retired", 1, "tested"),
        ("activated", 2, "tested"),
        ("retired", 2, "it lost events"),
        ("activated", 1, "it lost events"),
        ("retired", 1, ""),
    ]


def test_status_active_activates_at_once(service: Running, spec: Spec) -> None:
    record = put(service, spec | {"status": "active"}, 201)
    assert (record["active_version"], record["document"]["status"]) == (1, "active")
    assert put(service, spec | {"status": "active"}) == record
    assert put(service, spec) == record
    assert put(service, spec | {"status": "retired"}, 422)["pointer"] == "/status"


def test_activating_what_is_active_changes_nothing(service: Running, spec: Spec) -> None:
    put(service, spec | {"status": "active"}, 201)
    before = service.database.revision()
    set_status(service, "payroll", status="active")
    assert service.database.revision() == before


def test_the_order_of_keys_survives(service: Running, spec: Spec) -> None:
    put(service, spec, 201)
    document = service.reader.get("/v1/specs/payroll/versions/1").json()["document"]
    assert list(document["operations"][0]["spec"]) == ["b", "a"]


def test_one_active_spec_for_a_pair_of_patterns(service: Running, spec: Spec) -> None:
    put(service, spec | {"status": "active"}, 201)
    rival = spec | {"name": "rival"}
    put(service, rival, 201)
    assert service.admin.post("/v1/specs/check", json=rival).json()["warnings"]
    assert "payroll" in set_status(service, "rival", 409, status="active")["detail"]
    assert put(service, rival | {"status": "active", "description": "new"}, 409)
    assert statuses(service, "rival") == {1: "draft"}, "a refused activation stores no version either"
    put(service, rival | {"event_type": "*", "status": "active"})
    assert active(service) == ["payroll@1", "rival@2"]
    set_status(service, "rival", 409, status="active", version=1)
    set_status(service, "payroll", status="retired")
    set_status(service, "rival", status="active", version=1)
    assert active(service) == ["rival@1"]


def test_what_is_not_there(service: Running, spec: Spec) -> None:
    for url in ("", "/versions", "/versions/1"):
        assert service.reader.get(f"/v1/specs/payroll{url}").status_code == 404
    set_status(service, "payroll", 404, status="active")
    put(service, spec, 201)
    set_status(service, "payroll", 404, status="active", version=2)
    set_status(service, "payroll", 409, status="retired")
    set_status(service, "payroll", 422, status="draft")
    assert service.reader.get("/v1/specs/payroll/versions/2").status_code == 404


@pytest.mark.parametrize(
    ("fields", "pointer", "words"),
    [
        (
            {"operations": [{"operation": "shift"}, {"operation": "shfit"}]},
            "/operations/1/operation",
            "no such",
        ),
        ({"operations": {"operation": "x"}}, "/operations/operation", "no such"),
        ({"operations": "shift"}, "/operations", "valid"),
        (
            {"operations": [{"operation": "shift", "a/b": [1e400]}]},
            "/operations/0/a~1b/0",
            "not a JSON number",
        ),
        ({"specification_type": "jmespath"}, "/operations/0/operation", "jmespath"),
        (
            {"specification_type": "jolt", "operations": {"operation": "jmespath"}},
            "/operations/operation",
            "jolt",
        ),
        ({"id": "a\\b"}, "/id", "backslash"),
        ({"ordinal": "a..b"}, "/ordinal", "empty key"),
        ({"mode": "snapshot", "scope": "a."}, "/scope", "empty key"),
        ({"identifiers": []}, "/identifiers", "at least 1"),
        (
            {"identifiers": [{"type": "user id", "path": "a", "primary": True}]},
            "/identifiers/0/type",
            "pattern",
        ),
        ({"identifiers": [{"type": "u", "path": ".a", "primary": True}]}, "/identifiers/0/path", "empty key"),
        ({"identifiers": [{"type": "u", "path": "a"}]}, "", "exactly one identifier must be primary"),
        ({"evidence": {"links": [["user_id", "email"]]}}, "/evidence/links/0/1", "this type"),
        ({"evidence": {"links": [["user_id", "user_id"]] * 2}}, "/evidence/links/1", "twice"),
        ({"evidence": {"links": [["user_id"]]}}, "/evidence/links/0/1", "required"),
        ({"evidence": {"strength": -1}}, "/evidence/strength", "greater than or equal to 0"),
        ({"evidence": {"strong": 1}}, "/evidence/strong", "not permitted"),
        ({"retracts": "a..b"}, "/retracts", "empty key"),
        ({"source": None}, "/source", "string"),
        ({"name": "other"}, "/name", "URL"),
    ],
)
def test_a_malformed_spec_is_refused_with_its_place(
    service: Running, spec: Spec, fields: Spec, pointer: str, words: str
) -> None:
    body = json.dumps(spec | fields).encode()
    headers = {"Content-Type": "application/json"}
    answers = [service.admin.put("/v1/specs/payroll", content=body, headers=headers)]
    if "name" not in fields:
        answers.append(service.admin.post("/v1/specs/check", content=body, headers=headers))
    for answer in answers:
        assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json")
        assert answer.json()["pointer"] == pointer
        assert words in answer.json()["detail"]
    assert service.database.revision().version == 0


def test_a_missing_field_is_named(service: Running, spec: Spec) -> None:
    del spec["source"]
    answer = service.admin.put("/v1/specs/payroll", json=spec)
    assert answer.json()["errors"] == [{"detail": "Field required", "pointer": "/source"}]


def test_a_mixed_chain_needs_its_type(service: Running, spec: Spec) -> None:
    mixed = spec | {"operations": [{"operation": "shift"}, {"operation": "jmespath"}]}
    assert service.admin.post("/v1/specs/check", json=mixed).json()["valid"]
    pure = spec | {"operations": [{"operation": "jmespath"}], "specification_type": "jmespath"}
    assert service.admin.post("/v1/specs/check", json=pure).status_code == 200


def test_check_stores_nothing(service: Running, spec: Spec) -> None:
    assert service.admin.post("/v1/specs/check", json=spec).status_code == 200
    assert service.reader.get("/v1/specs").json() == {"items": [], "next": None}


def test_conditional_requests(service: Running, spec: Spec) -> None:
    put(service, spec, 201, **{"If-None-Match": "*"})
    put(service, spec, 412, **{"If-None-Match": "*"})
    etag = service.reader.get("/v1/specs/payroll").headers["ETag"]
    assert service.reader.get("/v1/specs/payroll", headers={"If-None-Match": etag}).status_code == 304
    put(service, spec | {"description": "mine"}, 200, **{"If-Match": etag})
    put(service, spec | {"description": "theirs"}, 412, **{"If-Match": etag})
    late = service.admin.post(
        "/v1/specs/payroll/status", json={"status": "active"}, headers={"If-Match": etag}
    )
    assert late.status_code == 412


def test_specs_are_listed_by_name_in_pages(service: Running, spec: Spec) -> None:
    for name in ("b", "C", "a"):
        put(service, spec | {"name": name}, 201)
    first = service.reader.get("/v1/specs", params={"limit": 2}).json()
    rest = service.reader.get("/v1/specs", params={"limit": 2, "cursor": first["next"]}).json()
    assert [item["name"] for item in first["items"] + rest["items"]] == ["C", "a", "b"]
    assert rest["next"] is None


def test_versions_are_listed_in_pages(service: Running, spec: Spec) -> None:
    for number in range(3):
        put(service, spec | {"priority": number}, 200 if number else 201)
    first = service.reader.get("/v1/specs/payroll/versions", params={"limit": 2}).json()
    rest = service.reader.get("/v1/specs/payroll/versions", params={"cursor": first["next"]}).json()
    assert [item["document"]["version"] for item in first["items"] + rest["items"]] == [3, 2, 1]


def test_of_many_authors_at_once_one_is_first(service: Running, spec: Spec) -> None:
    def create(author: int) -> int:
        body = spec | {"description": f"{author}"}
        return service.admin.put("/v1/specs/payroll", json=body, headers={"If-None-Match": "*"}).status_code

    with ThreadPoolExecutor(8) as authors:
        assert sorted(authors.map(create, range(8))) == [201] + [412] * 7
    assert statuses(service, "payroll") == {1: "draft"}


def test_the_real_compiler_is_used_unless_another_is_given(spec: Spec) -> None:
    check_spec(SpecDefinition.model_validate(spec), packaged_compiler)
    bad = SpecDefinition.model_validate(spec | {"operations": [{"operation": "shfit", "spec": {}}]})
    with pytest.raises(SpecError) as refused:
        check_spec(bad, packaged_compiler)
    assert refused.value.pointer.startswith("/operations/0")
