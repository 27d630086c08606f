"""Policy Changes and Audit, without a browser's help."""

from __future__ import annotations

import html
import re
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role
from metadata_service.storage.users import confirm_user
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.test_history_chain import rewrite
from tests.metadata_service.ui.site import Person, Site

pytestmark = pytest.mark.slow


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


def test_whoever_counts_as_the_same_person_sees_no_approve_button_until_somebody_confirms_the_account(
    site: Site,
) -> None:
    admin, officer = site.signed_in(), site.signed_in(Role.PRIVACY)
    address = asked(site, "govern.puppet")
    made = admin.post("/ui/users", {"name": "puppet", "role": "admin", "clearance": "0", "reason": "new"})
    shown = re.search(r'<code id="secret">([^<]+)</code>', made)
    assert shown
    browser = site.browser()
    password = html.unescape(shown[1])
    assert browser.post("/ui/sign-in", data={"name": "puppet", "password": password}).status_code == 200
    puppet = Person(browser)
    page = puppet.get(address)
    assert f"{address}/approve" not in page
    assert "counts as the same person" in page
    assert address not in puppet.get("/ui/")
    puppet.post(f"{address}/approve", {"reason": "x"}, 409)
    for each in (admin, puppet):
        assert 'value="confirm"' not in each.get("/ui/users?sel=puppet")
        each.post("/ui/users/puppet", {"act": "confirm", "reason": "x"}, 409)
    whose = officer.get("/ui/users?sel=puppet")
    assert "counts as the admin" in whose
    assert 'value="confirm"' in whose
    assert "puppet is confirmed" in officer.post("/ui/users/puppet", {"act": "confirm", "reason": "met"})
    assert f"{address}/approve" in puppet.get(address)
    assert "Approved" in puppet.post(f"{address}/approve", {"reason": "seen"})


def test_the_page_of_users_warns_where_nobody_is_a_second_person(tmp_path: Path) -> None:
    app = create_app(ServiceSettings(f"sqlite:///{tmp_path / 'metadata.db'}"))
    database = app.state.service.database
    with serving(app) as url, httpx.Client(base_url=url, follow_redirects=True, trust_env=False) as browser:
        assert browser.post("/ui/sign-in", data={"token": create_token(database, "first", Role.ADMIN)})
        admin = Person(browser)
        admin.post("/ui/users", {"name": "second", "role": "admin", "clearance": "0"})
        assert "Nobody can approve" in admin.get("/ui/users")
        with database.write("operator") as edit:
            confirm_user(edit, "second")
        assert "Nobody can approve" not in admin.get("/ui/users")


def test_the_page_that_refuses_names_the_least_role(site: Site) -> None:
    viewer = site.signed_in(Role.VIEWER)
    for path, fields, least in (
        ("/ui/rules", {"text": "{}"}, "analyst"),
        ("/ui/users", {"name": "x", "role": "viewer"}, "admin"),
        ("/ui/policy-changes/1/approve", {"reason": "x"}, "privacy"),
    ):
        refused = viewer.post(path, fields, 403)
        assert f"<code>{least}</code>" in refused
        assert "--scope" not in refused


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
