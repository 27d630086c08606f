"""Signing in with a password, persons, and keys: what the pages do beyond their calls."""

from __future__ import annotations

import html
import re
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from metadata_service.storage.tokens import Role, authenticate
from metadata_service.storage.tries import MOST_OF_ADDRESS, MOST_TRIES, MOST_WAITING, Tries
from metadata_service.storage.users import PersonRights, add_user
from tests.metadata_service.ui.site import Person, Site

pytestmark = pytest.mark.slow


RIGHTS = {"role": "viewer", "clearance": "10"}


def account(site: Site, name: str, role: str = "viewer") -> str:
    with site.app.state.service.database.write() as edit:
        return add_user(edit, name, PersonRights.model_validate({"role": role}))


def entered(site: Site, name: str, password: str, **fields: str) -> tuple[httpx.Client, httpx.Response]:
    browser = site.browser()
    return browser, browser.post("/ui/sign-in", data={"name": name, "password": password, **fields})


def secret(page: str) -> str:
    found = re.search(r'<code id="secret">([^<]+)</code>', page)
    assert found
    return html.unescape(found[1])


def test_a_password_begins_a_session_under_a_new_id(site: Site) -> None:
    password = account(site, "ann")
    browser = site.browser()
    browser.cookies.set("idgraph-session", "chosen-by-somebody-else", domain="127.0.0.1")
    fields = {"name": " ann ", "password": password, "next": "/ui/specs"}
    answer = browser.post("/ui/sign-in", data=fields, follow_redirects=False)
    assert answer.headers["Location"] == "/ui/specs"
    assert "chosen-by-somebody-else" not in answer.headers["Set-Cookie"]
    assert "ann" in browser.get("/ui/specs").text


@pytest.fixture
def tries(site: Site) -> Iterator[Tries]:
    """What a service has that just started; the others of this module try from the same address."""
    database = site.app.state.service.database
    before, database.tries = database.tries, Tries()
    yield database.tries
    database.tries.close()
    database.tries = before


@pytest.mark.usefixtures("tries")
def test_a_wrong_password_and_an_unknown_name_look_the_same(site: Site) -> None:
    password = account(site, "slowed")
    wrong = [[entered(site, name, "wrong")[1] for name in ("slowed", "nobody")] for _ in range(MOST_TRIES)]
    for each in wrong:
        assert [answer.status_code for answer in each] == [403, 403]
        assert each[0].text == each[1].text.replace("nobody", "slowed")
    assert "idgraph users reset" in wrong[0][0].text
    for name, given in (("slowed", password), ("nobody", "wrong")):
        answer = entered(site, name, given)[1]
        assert answer.status_code == 429
        assert int(answer.headers["Retry-After"]) > 0


def test_an_address_is_slowed_whatever_it_tries(site: Site, tries: Tries) -> None:
    password = account(site, "busy")
    for number in range(MOST_OF_ADDRESS):
        fields = [{"name": f"n{number}", "password": "x"}, {"token": "idg_x"}, {"code": "x"}][number % 3]
        assert site.browser().post("/ui/sign-in", data=fields).status_code == 403
    for fields in ({"name": "busy", "password": password}, {"token": site.tokens[Role.ADMIN]}):
        assert site.browser().post("/ui/sign-in", data=fields).status_code == 429
    assert site.browser().get("/ui/sign-in/callback?state=x&code=y").status_code == 429
    tries.give_back_address("127.0.0.1")
    assert entered(site, "busy", password)[1].status_code == 200


def test_others_are_answered_while_sign_ins_wait(site: Site, tries: Tries) -> None:
    password, done = account(site, "late"), threading.Event()
    try:
        working = tries.submit(done.wait)
        while not working.running():
            time.sleep(0.001)
        for _ in range(MOST_WAITING - 1):
            tries.submit(done.wait)
        answer = entered(site, "late", password)[1]
        assert answer.status_code == 429
        assert "Retry-After" in answer.headers
        assert site.api().get("/v1/me").status_code == 200
        assert site.signed_in(Role.VIEWER).get("/ui/")
    finally:
        done.set()
    working.result()
    assert entered(site, "late", password)[1].status_code == 200


def test_an_admin_makes_changes_and_disables_a_person(site: Site) -> None:
    admin = site.signed_in()
    made = admin.post("/ui/users", RIGHTS | {"name": "bob", "reason": "new"})
    password = secret(made)
    assert password not in admin.get("/ui/users?sel=bob")
    browser, answer = entered(site, "bob", password)
    assert answer.url.path == "/ui/"
    changed = admin.post("/ui/users/bob", {"act": "save", "role": "publisher", "clearance": "20"})
    assert "bob is saved" in changed
    assert browser.get("/ui/specs/shop-orders/edit").status_code == 200
    assert "bob is disabled" in admin.post("/ui/users/bob", {"act": "disable"})
    assert browser.get("/ui/specs").url.path == "/ui/sign-in"
    admin.post("/ui/users/bob", {"act": "enable"})
    again = secret(admin.post("/ui/users/bob", {"act": "reset"}))
    assert entered(site, "bob", password)[1].status_code == 403
    assert entered(site, "bob", again)[1].status_code == 200
    assert "bob" in admin.get("/ui/users?q=bo&role=publisher")
    assert "No user matches" in admin.get("/ui/users?q=nobody-like-this")
    admin.get("/ui/users?sel=nobody", 404)


def test_what_is_refused_is_said_and_what_was_typed_stays(site: Site) -> None:
    admin = site.signed_in()
    for fields, status in (
        ({"name": "x y"}, 422),
        ({"name": "carl", "clearance": "101"}, 422),
        ({"name": "carl", "clearance": "51"}, 403),
        ({"name": "the viewer"}, 422),
    ):
        page = admin.post("/ui/users", RIGHTS | fields, status)
        assert 'role="alert"' in page
        assert f'value="{fields["name"]}"' in page
    assert 'role="alert"' in admin.post(
        "/ui/keys", RIGHTS | {"name": "k", "clearance": "99", "days": "5"}, 403
    )


@pytest.mark.parametrize(
    ("role", "users", "adds"),
    [(Role.ADMIN, 200, 200), (Role.PRIVACY, 200, 403), (Role.PUBLISHER, 403, 403), (Role.VIEWER, 403, 403)],
)
def test_persons_are_for_admins_and_keys_for_everybody(site: Site, role: Role, users: int, adds: int) -> None:
    person = site.signed_in(role)
    person.get("/ui/users", users)
    person.get("/ui/keys")
    person.post("/ui/users", RIGHTS | {"name": f"made-by-{role}"}, adds)
    assert ("New user" in person.client.get("/ui/users").text) is (adds == 200)


def test_a_key_is_made_rotated_and_revoked(site: Site) -> None:
    password = account(site, "dora", "analyst")
    browser, _ = entered(site, "dora", password)
    dora, database = Person(browser), site.app.state.service.database
    page = dora.post("/ui/keys", {"name": "ci", "role": "viewer", "clearance": "0", "days": "7"})
    token = secret(page)
    found = authenticate(database, token)
    assert found
    assert (found.name, found.role) == ("dora/ci", Role.VIEWER)
    assert "in 6 days" in page
    # One click alone revokes nothing.
    assert re.search(r'<details[^>]*><summary[^>]*>Revoke…</summary>.*value="revoke"', page)
    place = re.search(r'action="(/ui/keys/\d+)"', page)
    assert place
    rotated = secret(dora.post(place[1], {"act": "rotate"}))
    assert authenticate(database, token) is None
    assert authenticate(database, rotated)
    assert "Revoked" in dora.post(place[1], {"act": "revoke"})
    assert authenticate(database, rotated) is None
    dora.post(place[1], {"act": "revoke"}, 404)
    # A key signs in nobody to the pages: its owner does.
    again = secret(dora.post("/ui/keys", {"name": "ci", "role": "viewer", "clearance": "0", "days": "7"}))
    assert site.browser().post("/ui/sign-in", data={"token": again}).status_code == 403


def test_a_changed_password_signs_out_everywhere(site: Site) -> None:
    password = account(site, "eve")
    here, there = (Person(entered(site, "eve", password)[0]) for _ in range(2))
    assert "current password is wrong" in here.post("/ui/password", {"current": "x", "wanted": 12 * "y"}, 422)
    here.post("/ui/password", {"current": password, "wanted": 12 * "y"})
    assert there.client.get("/ui/keys").url.path == "/ui/sign-in"
    assert entered(site, "eve", 12 * "y")[1].status_code == 200


def test_only_roles_that_the_admin_may_give_are_offered_and_clearances_say_what_they_show(site: Site) -> None:
    page = site.signed_in().get("/ui/users")
    form = page[page.index('<select id="role"') :]
    offered = re.findall(r"<option[^>]*>(\w+)</option>", form[: form.index("</select>")])
    assert "privacy" not in offered
    assert {"viewer", "publisher", "admin"} <= set(offered)
    scale = re.search(r'id="clearance-scale">([^<]+)<', page)
    assert scale
    assert re.search(r"50: also confidential", scale[1])
