"""Views and segments in the metadata service: versions, conditional edits, refusals, the snapshot."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from idgraph.model.snapshots import MetadataSnapshot
from tests.metadata_service.conftest import Running

pytestmark = pytest.mark.slow


VIEW = {
    "name": "crm",
    "attributes": {"age": "demographics.age", "contact": {"mail": "lower(identity.email)"}},
}
SEGMENT = {"name": "adults", "q": "demographics.age>=18"}
BOTH = pytest.mark.parametrize(("kind", "first"), [("views", VIEW), ("segments", SEGMENT)])


def put(client: httpx.Client, kind: str, body: dict[str, Any], **headers: str) -> httpx.Response:
    return client.put(f"/v1/{kind}/{body['name']}", params={"reason": "a test"}, json=body, headers=headers)


@BOTH
def test_an_edit_is_a_version_with_who_when_and_why(
    service: Running, kind: str, first: dict[str, Any]
) -> None:
    url = f"/v1/{kind}/{first['name']}"
    assert service.reader.get(url).status_code == 404
    saved = put(service.admin, kind, first)
    assert (saved.status_code, saved.json()["version"]) == (201, 1)
    assert put(service.admin, kind, first).json() == saved.json()
    known = service.reader.get(url)
    warnings = saved.json().pop("warnings")
    assert known.json() | {"warnings": warnings} == saved.json()
    assert known.headers["ETag"] == saved.headers["ETag"]
    assert service.reader.get(url, headers={"If-None-Match": known.headers["ETag"]}).status_code == 304
    second = first | {"description": "other words"}
    for client in (service.reader, service.pipeline):
        assert put(client, kind, second).status_code == 403
    answer = put(service.admin, kind, second, **{"If-Match": known.headers["ETag"]})
    assert (answer.status_code, answer.json()["version"]) == (200, 2)
    assert put(service.admin, kind, first, **{"If-Match": known.headers["ETag"]}).status_code == 412
    versions = service.reader.get(f"{url}/versions?limit=1").json()
    assert [(each["document"]["version"], each["reason"]) for each in versions["items"]] == [(2, "a test")]
    rest = service.reader.get(f"{url}/versions", params={"cursor": versions["next"]}).json()
    assert [(each["document"], each["actor"]) for each in rest["items"]] == [(known.json(), "the admin")]
    assert service.reader.get(f"/v1/{kind}").json()["items"] == [service.reader.get(url).json()]
    lines = service.reader.get("/v1/changes", params={"kind": kind.removesuffix("s")}).json()["items"]
    assert [(each["subject"], each["subject_version"]) for each in lines] == [
        (first["name"], 2),
        (first["name"], 1),
    ]


@BOTH
def test_the_snapshot_has_those_in_force(service: Running, kind: str, first: dict[str, Any]) -> None:
    def snapshot() -> tuple[MetadataSnapshot, str]:
        answer = service.reader.get("/v1/snapshot")
        return MetadataSnapshot.model_validate_json(answer.content), answer.headers["ETag"]

    known, etag = snapshot()
    assert kind not in known.model_dump(mode="json")
    for body in (first, first | {"name": "another"}, first | {"status": "retired"}):
        put(service.admin, kind, body)
        newest, changed = snapshot()
        assert changed != etag
        known, etag = newest, changed
    assert [each.name for each in getattr(known, kind)] == ["another"]
    put(service.admin, "views", VIEW | {"name": "elsewhere"})
    put(service.admin, "segments", SEGMENT | {"name": "elsewhere"})
    assert service.reader.get(f"/v1/{kind}/{first['name']}").json()["status"] == "retired"


@pytest.mark.parametrize(
    ("kind", "body", "pointer"),
    [
        ("views", {"attributes": {}}, "/attributes"),
        ("views", {"attributes": {"a": "b["}}, "/attributes/a"),
        ("views", {"attributes": {"a": {"b": 1}}}, "/attributes/a/b"),
        ("views", {"attributes": {"a": "b", "a.c": "d"}}, "/attributes"),
        ("views", {"attributes": {"a": "@"}, "purpose": "two words"}, "/purpose"),
        ("views", {"attributes": {"a": "@"}, "fields": []}, "/fields"),
        ("segments", {"q": "a=("}, "/q"),
        ("segments", {"query": [{"term": {"path": "a"}}]}, "/query"),
        ("segments", {"q": "a=1", "query": []}, ""),
        ("segments", {}, ""),
        ("segments", {"q": "a=1", "name": "another"}, "/name"),
        ("segments", {"query": [{"words": {"words": "x", "edits": 2}}] * 200}, "/query"),
        ("segments", {"q": " OR ".join(f"a>{n}" for n in range(100))}, "/q"),
    ],
)
def test_what_cannot_work_is_refused_with_the_place(
    service: Running, kind: str, body: dict[str, Any], pointer: str
) -> None:
    answer = service.admin.put(f"/v1/{kind}/x", json={"name": "x"} | body)
    assert (answer.status_code, answer.json().get("pointer", "")) == (422, pointer), answer.text
    assert service.reader.get(f"/v1/{kind}").json()["items"] == []


def test_a_segment_means_what_its_text_meant_when_it_was_saved(service: Running) -> None:
    assert put(service.admin, "segments", {"name": "s", "q": "a.code=44"}).json()["query"] == [
        {"term": {"path": "a.code", "value": 44}}
    ]
    declared = {"path": "a.code", "data_type": "string"}
    assert service.admin.put("/v1/attributes/a.code", json=declared).status_code == 201
    saved = put(service.admin, "segments", {"name": "s", "q": "a.code=44"}).json()
    assert (saved["version"], saved["query"]) == (2, [{"term": {"path": "a.code", "value": "44"}}])


def test_a_segment_holds_no_protected_value(service: Running) -> None:
    for path, level in (("identity.email", "searchable"), ("identity.ssn", "protected")):
        declared = {"path": path, "data_type": "string", "encryption": level}
        assert service.admin.put(f"/v1/attributes/{path}", json=declared).status_code == 201
    for q in ("identity.email=a@b.c", "identity=x", "identity.email.domain=x", "NOT identity.ssn=*"):
        answer = put(service.admin, "segments", {"name": "s", "q": q})
        assert (answer.status_code, answer.json()["pointer"]) == (422, "/q"), answer.text
    assert put(service.admin, "segments", {"name": "s", "q": "identity.email=*"}).status_code == 201


WARNED = {
    "visits.last>=2024-05-06": "1714953600000",
    "visits.last>now-30M": "moments are now-30d",
    "visits.last>now-30d": None,
    "visits.lost=1": "did you mean visits.last?",
    "contact=*@sub.example.org": "contact:sub.example.org",
    "visits.last>=1714953600000": None,
    "basket.sku=A1": None,
}


@pytest.mark.parametrize("q", WARNED)
def test_a_segment_is_saved_with_the_warnings_of_its_search(service: Running, q: str) -> None:
    for path, kind in (("visits.last", "integer"), ("contact", "string"), ("basket", "array")):
        declared = {"path": path, "data_type": kind}
        assert service.admin.put(f"/v1/attributes/{path}", json=declared).status_code == 201
    segment = {"name": "s", "q": q}
    checked = service.admin.post("/v1/segments/check", json=segment).json()["warnings"]
    assert put(service.admin, "segments", segment).json().get("warnings", []) == checked
    if (part := WARNED[q]) is None:
        assert checked == []
    else:
        (said,) = checked
        assert part in said
    missing = put(service.admin, "segments", segment | {"purpose": "surveys"}).json()["warnings"]
    assert any("consents.surveys.status" in each for each in missing)


def test_a_segment_keeps_its_moments_and_their_time_zone(service: Running) -> None:
    body = {
        "name": "lapsed",
        "q": "a.seen<today-30d OR a.seen=today@Asia/Tokyo",
        "time_zone": "Europe/Berlin",
    }
    saved = put(service.admin, "segments", body).json()
    assert saved["time_zone"] == "Europe/Berlin"
    assert (saved["q"], saved["query"]) == (
        body["q"],
        [
            {
                "any": [
                    {
                        "moment": {
                            "path": "a.seen",
                            "upper": "today-30d@Europe/Berlin",
                            "include_lower": True,
                            "include_upper": False,
                        }
                    },
                    {
                        "moment": {
                            "path": "a.seen",
                            "lower": "today@Asia/Tokyo",
                            "upper": "today+1d@Asia/Tokyo",
                            "include_lower": True,
                            "include_upper": False,
                        }
                    },
                ]
            }
        ],
    )
    refused = put(service.admin, "segments", body | {"time_zone": "Nowhere/City"})
    assert (refused.status_code, refused.json()["pointer"]) == (422, "/time_zone")


@pytest.mark.parametrize(
    ("kind", "form", "is_taken"),
    [
        ("integer", "milliseconds", True),
        ("string", "date", True),
        ("string", "rfc3339", True),
        ("string", "milliseconds", False),
        ("integer", "date", False),
        ("boolean", "date", False),
        ("string", "minutes", False),
    ],
)
def test_an_attribute_says_how_it_has_a_time(service: Running, kind: str, form: str, is_taken: bool) -> None:
    declared = {"path": "a.seen", "data_type": kind, "time": form}
    answer = service.admin.put("/v1/attributes/a.seen", json=declared)
    assert answer.status_code == (201 if is_taken else 422), answer.text
    if not is_taken:
        assert answer.json()["pointer"] == "/time"
        return
    assert service.reader.get("/v1/attributes/a.seen").json()["time"] == form
    query = put(service.admin, "segments", {"name": "s", "q": "a.seen<now"}).json()["query"]
    assert list(query[0]) == ["moment"]
    snapshot = MetadataSnapshot.model_validate_json(service.reader.get("/v1/snapshot").content)
    (known,) = snapshot.attributes
    assert known.time == form
