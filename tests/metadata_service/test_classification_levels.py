"""What a classification level means, and combinations that cannot work."""

from __future__ import annotations

from typing import Any

import pytest

from tests.metadata_service.conftest import Running


def put(service: Running, **stated: Any) -> Any:
    return service.admin.put("/v1/attributes/a", json={"path": "a", "data_type": "string", **stated})


@pytest.mark.parametrize(
    ("stated", "encryption", "indexable", "level"),
    [
        ({}, "none", True, 0),
        ({"classification": "public"}, "none", True, 0),
        ({"classification": "confidential"}, "protected", True, 50),
        ({"classification": "restricted"}, "protected", False, 80),
        ({"classification": "confidential", "encryption": "none"}, "none", True, 50),
        ({"classification": "restricted", "encryption": "searchable"}, "searchable", False, 80),
        ({"classification": "restricted", "authorization_level": 3}, "protected", False, 3),
    ],
)
def test_what_is_left_out_is_what_the_level_means(
    service: Running, stated: dict[str, Any], encryption: str, indexable: bool, level: int
) -> None:
    saved = put(service, **stated).json()
    found = saved["encryption"], saved["indexable"], saved["authorization_level"]
    assert found == (encryption, indexable, level)


def test_levels_are_edits_with_a_history_and_are_in_the_snapshot(service: Running) -> None:
    first = service.reader.get("/v1/classification-levels")
    levels = first.json()
    levels["internal"] = {"encryption": "protected", "indexable": False, "authorization_level": 20}
    known = {"If-Match": first.headers["ETag"]}
    changed = service.admin.put("/v1/classification-levels?reason=audit", json=levels, headers=known)
    assert changed.status_code == 200
    assert service.admin.put("/v1/classification-levels", json={}, headers=known).status_code == 412
    assert service.pipeline.put("/v1/classification-levels", json=levels).status_code == 403
    assert service.reader.get("/v1/snapshot").json()["levels"] == levels
    assert put(service).json()["encryption"] == "protected"
    (line,) = service.reader.get("/v1/changes?kind=classification_levels").json()["items"]
    assert (line["action"], line["reason"]) == ("saved", "audit")


def test_discovery_defaults_follow_their_level_too(service: Running) -> None:
    saved = service.admin.put("/v1/discovery-defaults", json={"classification": "restricted"}).json()
    assert (saved["encryption"], saved["indexable"], saved["authorization_level"]) == ("protected", False, 80)


@pytest.mark.parametrize(
    ("stated", "pointer", "said"),
    [
        ({"encryption": "searchable", "data_type": "array"}, "/encryption", "no blind index"),
        ({"encryption": "searchable", "data_type": "boolean"}, "/encryption", "two tokens"),
        (
            {"classification": "restricted", "encryption": "none", "indexable": True},
            "/indexable",
            "does not go into the search index",
        ),
        ({"classification": "confidential", "policy": "max"}, "/policy", "needs to read values"),
    ],
)
def test_what_cannot_work_is_refused_with_the_place(
    service: Running, stated: dict[str, Any], pointer: str, said: str
) -> None:
    answer = put(service, **stated)
    assert (answer.status_code, answer.json()["pointer"]) == (422, pointer)
    assert said in answer.json()["detail"]


def test_levels_and_defaults_that_cannot_work_are_refused(service: Running) -> None:
    open_plaintext = {"encryption": "none", "indexable": True}
    refused = service.admin.put("/v1/classification-levels", json={"restricted": open_plaintext})
    assert (refused.status_code, refused.json()["pointer"]) == (422, "/restricted/indexable")
    stated = {"classification": "restricted", **open_plaintext}
    refused = service.admin.put("/v1/discovery-defaults", json=stated)
    assert (refused.status_code, refused.json()["pointer"]) == (422, "/indexable")


def test_restricted_plaintext_may_be_kept_out_of_the_index(service: Running) -> None:
    stated = {"classification": "restricted", "encryption": "none", "indexable": False}
    assert put(service, **stated).status_code == 201
