"""Requests for access on their page: both sides see the state, and each does only their part."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from metadata_service.storage.tokens import Role
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.ui.site import Person, Site

pytestmark = pytest.mark.slow


PATH = "identity.email"


def person(site: Site, name: str, role: Role, clearance: int) -> Person:
    token = create_token(site.app.state.service.database, name, role, clearance=clearance)
    client = site.browser()
    assert client.post("/ui/sign-in", data={"token": token}).status_code == 200
    return Person(client)


def day(ahead: int) -> str:
    return f"{datetime.now(UTC) + timedelta(days=ahead):%Y-%m-%d}"


def ask(asking: Person, purpose: str) -> str:
    """The address of a new request."""
    page = asking.client.post(
        "/ui/requests",
        data={"path": PATH, "purpose": purpose, "until": day(30), "csrf": asking.csrf()},
    )
    assert page.status_code == 200, page.text
    found = re.search(r"sel=(\d+)", str(page.url))
    assert found
    return f"/ui/requests/{found[1]}"


def test_a_viewer_asks_and_an_officer_grants(site: Site) -> None:
    growth = person(site, "growth", Role.VIEWER, 10)
    officer = person(site, "officer", Role.PRIVACY, 90)
    shown = growth.get("/ui/requests?path=identity.email")
    assert f'value="{PATH}"' in shown
    place = ask(growth, "the summer campaign")
    assert "the summer campaign" in officer.get("/ui/requests")
    assert "Requests for access" in officer.get("/ui/")
    assert "Requests for access" not in growth.get("/ui/")
    number = place.rpartition("/")[2]
    assert 'value="granted"' not in growth.get(f"/ui/requests?sel={number}")
    growth.post(place, {"act": "granted", "reason": "mine"}, 403)
    assert 'role="alert"' in officer.post(place, {"act": "granted", "reason": "", "until": day(7)}, 422)
    assert "for how long" in officer.post(place, {"act": "asked", "reason": "for how long?"})
    assert "Asked back" in growth.get("/ui/requests")
    growth.post(place, {"act": "reply", "reason": "a week"})
    granted = officer.post(place, {"act": "granted", "reason": "a week it is", "until": day(7)})
    assert "a week it is" in granted
    assert "a week it is" in growth.get(f"/ui/requests?sel={number}")
    assert "the summer campaign" in officer.get("/ui/requests?show=granted")
    assert "Ended" in growth.post(place, {"act": "end", "reason": "done"})
    assert "the summer campaign" not in officer.get("/ui/requests?show=granted")
    officer.post(place, {"act": "granted", "reason": "again"}, 409)


def test_a_view_is_granted_and_its_end_reminded_of(site: Site) -> None:
    view = {"name": "contact", "attributes": {"mail": PATH}}
    site.api().put("/v1/views/contact", json=view).raise_for_status()
    asking, officer = person(site, "viewing", Role.VIEWER, 10), person(site, "granting", Role.PRIVACY, 90)
    assert "/ui/requests?view=contact" in asking.get("/ui/views/contact")
    assert "<option selected>contact</option>" in asking.get("/ui/requests?view=contact")
    fields = {"path": "", "view": "contact", "purpose": "letters", "until": day(5)}
    assert "the view" in asking.post("/ui/requests", fields)
    assert "asks for the view contact" in officer.get("/ui/")
    number = asking.client.get("/ui/requests").text.partition("sel=")[2].partition('"')[0].partition("&")[0]
    shown = officer.get(f"/ui/requests?sel={number}")
    assert f"<code>{PATH}</code>" in shown
    assert "Your access ends" not in asking.get("/ui/")
    officer.post(f"/ui/requests/{number}", {"act": "granted", "reason": "five days", "until": day(5)})
    assert "Your access ends" in asking.get("/ui/")
    assert "You see the view contact until" in asking.get("/ui/requests")
    assert "You see the view contact until" not in officer.get("/ui/requests")
    asking.post("/ui/requests", fields | {"until": day(90)})
    assert "Your access ends" not in asking.get("/ui/")


def test_a_granted_spec_opens_in_the_editor(site: Site) -> None:
    name = str(site.api().get("/v1/specs").json()["items"][0]["document"]["name"])
    asking, publisher = person(site, "editing", Role.VIEWER, 0), person(site, "putting", Role.PUBLISHER, 0)
    assert f"/ui/requests?spec={name}" in asking.get(f"/ui/specs/{name}")
    asking.get(f"/ui/specs/{name}/edit", 403)
    fields = {"path": "", "spec": name, "purpose": "a field more", "until": day(5)}
    assert "asks to edit the spec" in asking.post("/ui/requests", fields)
    assert f"asks for the spec {name}" in publisher.get("/ui/")
    number = asking.client.get("/ui/requests").text.partition("sel=")[2].partition('"')[0].partition("&")[0]
    publisher.post(f"/ui/requests/{number}", {"act": "granted", "reason": "five days", "until": day(5)})
    assert f"You edit the spec {name} until" in asking.get("/ui/requests")
    page = asking.get(f"/ui/specs/{name}/edit")
    assert 'value="draft"' in page
    assert f"/ui/requests?spec={name}" not in asking.get(f"/ui/specs/{name}")
    asking.post(f"/ui/requests/{number}", {"act": "end", "reason": "done"})
    asking.get(f"/ui/specs/{name}/edit", 403)


def test_what_is_wrong_is_said_and_what_was_typed_stays(site: Site) -> None:
    asking = person(site, "mistyping", Role.ANALYST, 10)
    for fields, status in (
        ({"path": "no.such.path", "purpose": "x", "until": day(3)}, 404),
        ({"path": PATH, "purpose": "x", "until": day(300)}, 422),
        ({"path": PATH, "purpose": "x", "until": "soon"}, 422),
    ):
        page = asking.post("/ui/requests", fields, status)
        assert 'role="alert"' in page
        assert fields["path"] in page
    asking.get("/ui/requests?sel=999999", 404)
    other = person(site, "another", Role.VIEWER, 10)
    number = ask(asking, "<script>alert(1)</script>").rpartition("/")[2]
    other.get(f"/ui/requests?sel={number}", 404)
    assert "<script>alert" not in asking.get(f"/ui/requests?sel={number}")


def test_an_attribute_above_ones_clearance_can_be_asked_for(site: Site) -> None:
    body = {"path": "asked.for", "data_type": "string", "authorization_level": 40}
    site.api().put("/v1/attributes/asked.for", json=body).raise_for_status()
    low = person(site, "low", Role.VIEWER, 10)
    assert "/ui/requests?path=asked.for" in low.get("/ui/attributes/asked.for")
    assert "/ui/requests?path=" not in site.signed_in().get("/ui/attributes/asked.for")
