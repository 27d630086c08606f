"""Policy Changes and Audit, without a browser's help."""

from __future__ import annotations

import re

from sqlalchemy import text

from metadata_service.storage.tokens import Role
from tests.metadata_service.test_history_chain import rewrite
from tests.metadata_service.ui.site import Site

SCRIPT = '<script>alert(1)</script>"onload=alert(1)'


def asked(site: Site, path: str, reason: str = "asked by support") -> str:
    """The address of a change that the admin asked for, which weakens the protection of a new attribute."""
    admin = site.api()
    body = {"path": path, "data_type": "string", "encryption": "protected"}
    admin.put(f"/v1/attributes/{path}", json=body).raise_for_status()
    weaker = admin.put(
        f"/v1/attributes/{path}", json=body | {"encryption": "none"}, params={"reason": reason}
    )
    assert weaker.status_code == 202, weaker.text
    return str(weaker.headers["Location"]).replace("/v1/", "/ui/")


def test_another_person_approves_what_weakens_protection(site: Site) -> None:
    address = asked(site, "govern.approved", SCRIPT)
    admin, officer = site.signed_in(), site.signed_in(Role.PRIVACY)
    page = admin.get(address)
    assert "govern.approved: protected to none" in page
    assert "<script>alert" not in page
    assert f"{address}/approve" not in page
    admin.post(f"{address}/approve", {"reason": "alone"}, 409)
    assert address in officer.get("/ui/policy-changes")
    assert f"{address}/approve" in officer.get(address)
    assert "Approved" in officer.post(f"{address}/approve", {"reason": "seen the ticket"})
    assert address not in officer.get("/ui/policy-changes")
    assert address in officer.get("/ui/policy-changes?status=approved")
    assert "seen the ticket" in officer.get(address)
    officer.post(f"{address}/refuse", {"reason": "too late"}, 409)
    attribute = site.api().get("/v1/attributes/govern.approved").json()
    assert attribute["encryption"] == "none"


def test_who_asked_takes_it_back_and_a_viewer_only_looks(site: Site) -> None:
    address = asked(site, "govern.refused")
    viewer = site.signed_in(Role.VIEWER)
    assert "/refuse" not in viewer.get(address)
    viewer.post(f"{address}/refuse", {"reason": "x"}, 403)
    assert "Refused" in site.signed_in().post(f"{address}/refuse", {"reason": "a mistake"})
    assert site.api().get("/v1/attributes/govern.refused").json()["encryption"] == "protected"
    viewer.get("/ui/policy-changes/999999", 404)
    viewer.get("/ui/policy-changes?status=nonsense", 422)


def test_the_history_is_filtered_by_who_kind_and_subject(site: Site) -> None:
    asked(site, "govern.audited", SCRIPT)
    viewer = site.signed_in(Role.VIEWER)
    page = viewer.get("/ui/audit?subject=govern.audited&kind=attribute&who=the+admin")
    assert re.search(r"attribute\s+requested", page)
    assert "<script>alert" not in page
    assert "No change matches" in viewer.get("/ui/audit?subject=govern.audited&who=nobody")
    api = site.api(Role.VIEWER)
    mine = api.get("/v1/changes", params={"actor": "the admin", "subject": "govern.audited"}).json()["items"]
    assert [each["action"] for each in mine] == ["requested", "saved"]
    assert api.get("/v1/changes", params={"actor": "nobody"}).json()["items"] == []


def test_an_officer_verifies_the_chain(site: Site) -> None:
    officer, viewer = site.signed_in(Role.PRIVACY), site.signed_in(Role.VIEWER)
    assert "Chain verified up to" in officer.post("/ui/audit", {})
    found = site.api().post("/v1/changes/verify").json()
    newest = site.api().get("/v1/changes?limit=1").json()["items"][0]["snapshot_version"]
    assert (found["versions"], found["broken_version"]) == (newest, None)
    assert "Verify the chain" not in viewer.get("/ui/audit")
    viewer.post("/ui/audit", {}, 403)


def test_an_altered_version_is_named(site: Site) -> None:
    database = site.app.state.service.database
    with database.read() as session:
        (reason,) = session.execute(text("SELECT reason FROM snapshots WHERE version = 2")).one()
    rewrite(database, ["UPDATE snapshots SET reason = 'another' WHERE version = 2"])
    try:
        assert site.api().post("/v1/changes/verify").json()["broken_version"] == 2
        assert "Version 2 was altered" in site.signed_in().post("/ui/audit", {})
    finally:
        with database.engine.begin() as connection:
            connection.execute(
                text("UPDATE snapshots SET reason = :reason WHERE version = 2"), {"reason": reason}
            )
