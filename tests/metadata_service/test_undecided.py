"""Found by review (M4): a publisher filled the catalogue for good. There are caps, and a purge."""

from __future__ import annotations

from typing import Any

import pytest

from metadata_service.attributes import undecided
from tests.metadata_service.conftest import Running


def seen(service: Running, *paths: str, source: str = "crm", **more: Any) -> dict[str, Any]:
    changes = [
        {"path": path, "data_type": "string", "source": source, "first_event": f"{source}/0/1", **more}
        for path in paths
    ]
    answer = service.pipeline.patch("/v1/schema", json={"changes": changes})
    assert answer.status_code == 200, answer.text
    record: dict[str, Any] = answer.json()
    return record


def known(service: Running) -> list[str]:
    return [each["path"] for each in service.reader.get("/v1/attributes").json()["items"]]


def caps(service: Running, **stated: int) -> None:
    service.admin.put("/v1/discovery-defaults?reason=caps", json=stated).raise_for_status()


def purged(service: Running, **wanted: Any) -> dict[str, Any]:
    answer = service.admin.post("/v1/attribute-purges?reason=noise", json=wanted)
    assert answer.status_code == 200, answer.text
    record: dict[str, Any] = answer.json()
    return record


def test_one_source_cannot_fill_the_catalogue_nor_take_another_ones_room(service: Running) -> None:
    caps(service, most_new_per_source_and_day=3)
    assert (seen(service, "a", "b")["created"], seen(service, "b")["unchanged"]) == (2, 1)
    record = seen(service, "c", "d", "e")
    assert (record["created"], record["waiting"], record["refused"]) == (1, 2, 0)
    assert seen(service, "f", source="shop")["created"] == 1
    assert known(service) == ["a", "b", "c", "f"]
    counts = service.reader.get("/v1/discovery-counts").json()
    assert [(each["source"], each["created"], each["waiting"]) for each in counts["days"]] == [
        ("crm", 3, 2),
        ("shop", 1, 0),
    ]
    assert "idgraph_metadata_attributes_over_cap 2.0" in service.nobody.get("/metrics").text
    caps(service, most_new_per_source_and_day=4)
    assert seen(service, "d")["created"] == 1, "an event that shows it again reports it again"


def test_the_catalogue_has_a_size(service: Running) -> None:
    caps(service, most_attributes=2)
    assert seen(service, "a", "b", "c")["waiting"] == 1
    assert seen(service, "x", source="other")["waiting"] == 1
    declared = {"path": "z", "data_type": "string"}
    assert service.admin.put("/v1/attributes/z", json=declared).status_code == 201, "people are not bounded"


def test_many_sources_share_one_count(service: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Names of sources may come from events as well."""
    monkeypatch.setattr(undecided, "MOST_SOURCES", 2)
    caps(service, most_new_per_source_and_day=1)
    created = [seen(service, f"p{number}", source=f"s{number}")["created"] for number in range(5)]
    assert created == [1, 1, 1, 0, 0]
    days = service.reader.get("/v1/discovery-counts").json()["days"]
    assert {each["source"] for each in days} == {"s0", "s1", "*"}


def test_undecided_attributes_are_purged_and_discovered_again(service: Running) -> None:
    seen(service, "noise.a", "noise.b", "keep.c")
    declared = {"path": "noise.b", "data_type": "string"}
    service.admin.put("/v1/attributes/noise.b", json=declared).raise_for_status()
    etag = service.reader.get("/v1/snapshot").headers["ETag"]
    would = purged(service, prefix="noise.")
    assert (would["purged"], would["paths"], known(service)) == (
        1,
        ["noise.a"],
        ["keep.c", "noise.a", "noise.b"],
    )
    assert purged(service, prefix="noise.", dry_run=False)["purged"] == 1
    assert known(service) == ["keep.c", "noise.b"]
    catalogue = service.reader.get("/v1/catalogue").json()
    assert [each["path"] for each in catalogue["attributes"]] == ["keep.c", "noise.b"]
    snapshot = service.reader.get("/v1/snapshot").json()
    assert [each["path"] for each in snapshot["attributes"]] == ["noise.b"]
    # A flow that knows the state before reads the whole.
    assert service.reader.get("/v1/snapshot", headers={"If-None-Match": etag}).status_code == 200
    assert seen(service, "noise.a")["created"] == 1
    assert service.reader.get("/v1/attributes/noise.a").json()["version"] == 2
    line = service.reader.get("/v1/changes?kind=attribute").json()["items"][1]
    assert (line["action"], line["reason"], line["actor"]) == ("purged", "noise", "the admin")


def test_what_protects_is_not_purged(service: Running) -> None:
    service.admin.put("/v1/discovery-defaults", json={"encryption": "protected"}).raise_for_status()
    seen(service, "old.sealed")
    proposal = {"kind": "email", "classification": "confidential", "reason": "its name", "confidence": 0.9}
    asked = service.admin.put("/v1/discovery-defaults", json={"encryption": "none"})
    assert asked.status_code == 202
    seen(service, "old.mail", proposal=proposal)
    record = purged(service, source="crm", dry_run=False)
    assert (record["paths"], record["kept"]) == (["old.sealed"], 1), "the defaults protect it still"
    service.admin.put(
        "/v1/attributes/a", json={"path": "a", "data_type": "string", "encryption": "protected"}
    )
    discovered = {"path": "a", "data_type": "string", "encryption": "protected", "status": "discovered"}
    service.admin.put("/v1/attributes/a", json=discovered | {"authorization_level": 60}).raise_for_status()
    assert purged(service, prefix="a", dry_run=False) == {"purged": 0, "kept": 1, "paths": [], "is_all": True}


def test_a_purge_says_what_and_why(service: Running) -> None:
    assert service.admin.post("/v1/attribute-purges?reason=x", json={}).status_code == 422
    assert (
        service.admin.post("/v1/attribute-purges", json={"prefix": "a", "dry_run": False}).status_code == 422
    )
    assert service.reader.post("/v1/attribute-purges", json={"prefix": "a"}).status_code == 403
