"""The health of specs: what flows report is added up, and is no edit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.metadata_service.conftest import Running
from tests.metadata_service.test_access import assert_problem


def use(spec: str | None = "orders", events: int = 10, **more: Any) -> dict[str, Any]:
    return {
        "spec": spec,
        "version": 1,
        "source": "shop",
        "events": events,
        "errors": 1,
        "last_used": 1_709_251_200_000,
    } | more


def report(service: Running, *uses: dict[str, Any]) -> None:
    answer = service.pipeline.patch("/v1/schema", json={"changes": [], "uses": list(uses)})
    assert answer.status_code == 200, answer.text


def health(service: Running, **params: Any) -> dict[str, Any]:
    found: dict[str, Any] = service.reader.get("/v1/spec-health", params=params).json()
    return found


@pytest.fixture
def active(service: Running, spec: dict[str, Any]) -> str:
    name: str = spec["name"]
    service.admin.put(f"/v1/specs/{name}", json=spec | {"status": "active"}).raise_for_status()
    return name


def test_reports_are_added_up_and_make_no_version(service: Running, active: str) -> None:
    before = service.reader.get("/v1/snapshot").headers["etag"]
    assert health(service)["items"][0]["uses"] == []
    report(service, use(active, fields={"/a": False, "/b": False}))
    report(
        service,
        use(
            active,
            5,
            last_used=1_709_251_260_000,
            fields={"/b": True, "/c": False, "/e": False, "/e/x": True},
        ),
    )
    (item,) = health(service)["items"]
    (found,) = item["uses"]
    assert (item["name"], item["version"]) == (active, 1)
    assert (found["events"], found["errors"], found["unread"]) == (15, 2, ["/a", "/c"])
    assert (found["since"][:16], found["last_used"][:16]) == ("2024-03-01T00:00", "2024-03-01T00:01")
    assert service.reader.get("/v1/snapshot").headers["etag"] == before


def test_only_the_version_in_force_is_shown(service: Running, active: str, spec: dict[str, Any]) -> None:
    report(service, use(active), use(active, 7, version=2), use("unknown"))
    assert [each["events"] for each in health(service)["items"][0]["uses"]] == [10]
    newer = spec | {"status": "active", "description": "newer"}
    service.admin.put(f"/v1/specs/{active}", json=newer).raise_for_status()
    assert [each["events"] for each in health(service)["items"][0]["uses"]] == [7]


def test_events_without_a_spec(service: Running) -> None:
    report(service, use(None, 0, version=0, errors=4), use(None, 0, version=0, errors=2, source="other"))
    assert [(each["source"], each["events"]) for each in health(service)["unmapped"]] == [
        ("other", 2),
        ("shop", 4),
    ]


def test_the_last_moment_is_shown_in_every_time_zone(service: Running) -> None:
    """Found on PostgreSQL: east of UTC it is in the year 10000, which Python has not, and health was not shown any more."""
    late = {"changes": [], "uses": [use(None, last_used=253_402_300_799_999)]}
    assert service.pipeline.patch("/v1/schema", json=late).status_code == 422
    report(service, use(None, last_used=253_370_764_799_999))
    assert [each["last_seen"][:4] for each in health(service)["unmapped"]] == ["9998"]


def test_pages_and_rights(service: Running, spec: dict[str, Any]) -> None:
    for name in ("a", "b", "c"):
        stated = spec | {"name": name, "source": name, "status": "active"}
        service.admin.put(f"/v1/specs/{name}", json=stated).raise_for_status()
    first = health(service, limit=2)
    second = health(service, limit=2, cursor=first["next"])
    assert [each["name"] for each in first["items"] + second["items"]] == ["a", "b", "c"]
    assert second["next"] is None
    body = {"changes": [], "uses": [use("a")]}
    assert_problem(service.reader.patch("/v1/schema", json=body), 403)
    for wrong in (
        use("a", -1),
        use("a", last_used=2**52),
        use("a", fields={"/x": "perhaps"}),
        use("a", fields={f"/{n}": False for n in range(201)}),
    ):
        assert_problem(service.pipeline.patch("/v1/schema", json={"changes": [], "uses": [wrong]}), 422)
    assert_problem(service.nobody.get("/v1/spec-health"), 401)
