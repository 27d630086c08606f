"""The pages without a browser's help: who may see them, forms of other sites, stored script, conflicts."""

from __future__ import annotations

import hashlib
import html
import json
import re
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from sqlalchemy import select, text, update

from metadata_service.storage.database import open_database
from metadata_service.storage.sessions import IDLE, LINK, LONGEST, SignInSessions
from metadata_service.storage.tables import SessionRow
from metadata_service.storage.tokens import Role, revoke_token
from metadata_service.ui import specs
from metadata_service.ui.app import HEADERS
from metadata_service.ui.frame import STATIC
from metadata_service.ui.page import local_path
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.ui.site import EVENT, Site

pytestmark = pytest.mark.slow


AXE_DIGEST = "29348999450cdf2849a8e70b7912fc2da85a849da39c0d0d5394f51d4a9ed95c"
SCRIPT = '<script>alert(1)</script>"onload=alert(1)\u202e'
PAGES = (
    "/ui/attributes",
    "/ui/attributes/identity.email",
    "/ui/specs",
    "/ui/specs/shop-segment",
    "/ui/users",
    "/ui/keys",
    "/ui/requests",
    "/ui/sandboxes",
)
segment = partial(quote, safe="")
EDITOR = "/ui/specs/shop-segment/edit"


def editor_field(page: str, name: str) -> str:
    found = re.search(
        rf'<(?:textarea|input)[^>]* name="{name}"[^>]*?(?: value="([^"]*)"|>(.*?)</textarea>)', page, re.S
    )
    assert found, name
    return html.unescape(found[1] if found[1] is not None else found[2]).removeprefix("\n")


def test_every_answer_has_the_content_policy(site: Site) -> None:
    browser = site.browser()
    for path in ("/ui/sign-in", "/ui/attributes", "/ui/none", "/ui/static/pages.css", "/ui/static/none"):
        answer = browser.get(path)
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert "unsafe" not in answer.headers["Content-Security-Policy"]
    assert browser.get("/v1/specs").status_code == 401


def test_no_page_has_script_or_style_of_its_own(site: Site) -> None:
    person = site.signed_in()
    for path in (*PAGES, EDITOR, "/ui/profiles"):
        page = person.get(path)
        assert not re.search(r"<script(?![^>]* src=)|<style|\sstyle=|\son[a-z]+=", page), path


def test_vendored_scripts_are_the_ones_whose_digests_are_noted() -> None:
    lines = [line.split() for line in (STATIC / "vendored.sha256").read_text().splitlines()]
    noted = {name: digest for digest, name in lines}
    for name, digest in noted.items():
        assert hashlib.sha256((STATIC / name).read_bytes()).hexdigest() == digest
        assert (STATIC / f"{name.removesuffix('.min.js')}.LICENSE.txt").read_text()
    assert set(noted) == {file.name for file in STATIC.glob("*.min.js")}
    axe = Path(__file__).with_name("axe.min.js").read_bytes()
    assert hashlib.sha256(axe).hexdigest() == AXE_DIGEST


def test_a_token_begins_a_session_under_a_new_id(site: Site) -> None:
    browser = site.browser()
    browser.cookies.set("idgraph-session", "chosen-by-somebody-else", domain="127.0.0.1")
    answer = browser.post("/ui/sign-in", data={"token": site.tokens[Role.ADMIN]}, follow_redirects=False)
    cookie = answer.headers["Set-Cookie"]
    assert answer.status_code == 303
    assert "chosen-by-somebody-else" not in cookie
    assert "HttpOnly" in cookie
    assert "SameSite=lax" in cookie


def test_the_address_alone_leads_to_the_pages(site: Site) -> None:
    answer = site.browser().get("/")
    assert answer.status_code == 200
    assert answer.url.path == "/ui/sign-in"


def test_signing_out_ends_the_session(site: Site) -> None:
    person = site.signed_in()
    stolen = person.client.cookies["idgraph-session"]
    person.post("/ui/sign-out", {})
    thief = site.browser()
    thief.cookies.set("idgraph-session", stolen)
    assert "/ui/sign-in" in str(thief.get("/ui/attributes").url)


def test_a_wrong_token_says_how_to_get_another(site: Site) -> None:
    answer = site.browser().post("/ui/sign-in", data={"token": "guessed"})
    assert answer.status_code == 403
    assert "idgraph tokens add" in answer.text
    assert "guessed" not in answer.text


def test_a_revoked_token_ends_its_sessions(site: Site) -> None:
    database = site.app.state.service.database
    browser = site.browser()
    browser.post("/ui/sign-in", data={"token": create_token(database, "leaver", Role.READER)})
    assert browser.get("/ui/attributes").url.path == "/ui/attributes"
    revoke_token(database, "leaver")
    assert browser.get("/ui/attributes").url.path == "/ui/sign-in"


def test_a_link_signs_in_once(site: Site) -> None:
    code = site.app.state.pages.state.sessions.make_link_code(site.tokens[Role.ADMIN])
    first, second = site.browser(), site.browser()
    # A preview of the link does not use it up.
    assert "Sign in by this link" in second.get(f"/ui/sign-in?code={code}").text
    assert first.post("/ui/sign-in", data={"code": code}).url.path == "/ui/"
    assert second.post("/ui/sign-in", data={"code": code}).status_code == 403


def test_sessions_and_links_end_with_time(site: Site) -> None:
    database, now = site.app.state.service.database, [datetime.now(UTC)]
    token = create_token(database, "by the clock", Role.READER)
    sessions = SignInSessions(database, lambda: now[0])
    code, idle, busy = sessions.make_link_code(token), sessions.begin(token), sessions.begin(token)
    assert code
    assert idle
    assert busy
    began = now[0]
    while now[0] <= began + LONGEST - IDLE:
        assert sessions.find(busy)
        now[0] += IDLE - timedelta(minutes=1)
        assert now[0] < began + IDLE or sessions.find(idle) is None
    assert sessions.find(busy)
    now[0] = began + LONGEST
    assert sessions.find(busy) is None
    assert now[0] > began + LINK
    assert sessions.begin_by_code(code) is None


@pytest.mark.parametrize(
    "page",
    [
        *(
            "/ui/flows",
            "/ui/flows/shop",
            "/ui/jobs",
            "/ui/jobs/1",
            "/ui/review/suggestions",
            "/ui/erasures/1",
        ),
        *("/ui/rules/previews/1", "/ui/specs/shop-orders/effect/1"),
    ],
)
def test_a_page_that_asks_for_itself_keeps_no_session(site: Site, page: str) -> None:
    """Found by review: a page of flows that was left open kept its session for twelve hours."""
    person, database = site.signed_in(), site.app.state.service.database
    before = datetime.now(UTC) - timedelta(minutes=20)
    with database.write() as edit:
        edit.session.execute(update(SessionRow).values(used=before))

    def used() -> set[datetime]:
        with database.read() as session:
            return set(session.scalars(select(SessionRow.used)))

    person.client.get(page, headers={"HX-Request": "true"})
    assert used() == {before}
    person.client.get(page)
    assert before not in used() or len(used()) > 1


def test_a_session_is_known_to_every_process_and_after_a_restart(site: Site) -> None:
    database = site.app.state.service.database
    begun = SignInSessions(database).begin(site.tokens[Role.ADMIN])
    assert begun
    with closing(open_database(str(database.engine.url))) as another:
        found, here = SignInSessions(another).find(begun), SignInSessions(database).find(begun)
    assert found
    assert here
    assert found == here
    with database.read() as session:
        stored = str(session.execute(text("SELECT * FROM sessions")).all())
    for secret in (begun, found.csrf, found.profiles_token):
        assert secret
        assert secret not in stored
    SignInSessions(database).end(begun)
    assert SignInSessions(database).find(begun) is None


@pytest.mark.parametrize(
    "target",
    [
        "https://evil.example",
        "//evil.example",
        "/\\evil.example",
        "/ui//evil.example",
        "javascript:alert(1)",
        "/uix",
        "/ui/\n//x",
    ],
)
def test_signing_in_leads_to_pages_of_this_site_only(site: Site, target: str) -> None:
    assert local_path(target) == "/ui/"
    answer = site.browser().post(
        "/ui/sign-in", data={"token": site.tokens[Role.ADMIN], "next": target}, follow_redirects=False
    )
    assert answer.headers["Location"].startswith("/ui")
    assert "evil" not in answer.headers["Location"]


def test_signing_in_leads_to_the_page_that_was_asked_for(site: Site) -> None:
    browser = site.browser()
    shown = browser.get("/ui/specs?q=shop").text
    target = editor_field(shown, "next")
    assert (
        browser.post("/ui/sign-in", data={"token": site.tokens[Role.ADMIN], "next": target}).url.query
        == b"q=shop"
    )


@pytest.mark.parametrize(
    "path",
    [
        "/ui/sign-out",
        "/ui/specs/shop-segment/publish",
        "/ui/specs/shop-segment/activate",
        "/ui/generate",
        "/ui/specs-new",
        "/ui/attributes/identity.userId",
        "/ui/profiles",
    ],
)
def test_forms_need_the_token_of_the_session(site: Site, path: str) -> None:
    person, other = site.signed_in(), site.signed_in()
    before = person.get("/ui/specs/shop-segment")
    for csrf in ("", "guessed", other.csrf()):
        assert person.client.post(path, data={"csrf": csrf, "text": "{}", "reason": "x"}).status_code == 403
    mine = {"csrf": person.csrf()}
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}):
        assert person.client.post(path, data=mine, headers=headers).status_code == 403
    assert person.get("/ui/specs/shop-segment") == before


@pytest.mark.parametrize(
    ("role", "allowed"),
    [
        (Role.ADMIN, {"/ui/attributes", "/ui/specs", EDITOR}),
        (Role.READER, {"/ui/attributes", "/ui/specs"}),
        (Role.VIEWER, {"/ui/attributes", "/ui/specs"}),
        (Role.PROFILES, set()),
    ],
)
def test_pages_are_for_the_roles_of_the_calls_behind_them(site: Site, role: Role, allowed: set[str]) -> None:
    person = site.signed_in(role)
    for path in ("/ui/attributes", "/ui/specs", EDITOR):
        text = person.get(path, 200 if path in allowed else 403)
        assert (path in allowed) or "Ask for access" in text
    changing = 200 if role is Role.ADMIN else 403
    person.post("/ui/specs/shop-segment/check", {"text": "{}"}, changing)
    person.post(
        "/ui/attributes/identity.userId/proposal", {"decision": "confirm"}, 409 if changing == 200 else 403
    )


def test_attributes_are_filtered_sorted_and_paged_by_the_address(site: Site) -> None:
    person = site.signed_in()
    sealed = person.get("/ui/attributes?encryption=protected&encryption=searchable&sort=-path")
    paths = re.findall(r'title="([^":]+)[":]', sealed.partition("<tbody>")[2])
    assert [each for each in paths if "." in each] == [
        "identity.name",
        "identity.email",
        "address.shipping.line1",
    ]
    seen: list[str] = []
    address = "/ui/attributes?limit=2&sort=-encryption"
    while address:
        page = person.get(address)
        seen += re.findall(r'href="/ui/attributes/([^"?]+)" title', page)
        following = re.search(r'rel="next" href="([^"]+)"', page)
        address = f"/ui/attributes{html.unescape(following[1])}" if following else ""
    assert len(seen) == len(set(seen)) == 7
    assert seen[0] == "identity.email"
    assert "No attribute matches" in person.get("/ui/attributes?q=nothing-like-it")
    person.get("/ui/attributes?sort=nothing", 422)
    assert "path=x" in person.get("/ui/attributes?path=x&self=1")


@pytest.mark.parametrize(
    "plural",
    ["attributes", "specs", "views", "segments", "activities", "derived-attributes", "triggers", "models"],
)
def test_the_call_behind_a_list_is_the_one_of_its_address(site: Site, plural: str) -> None:
    """Found by review: names that templates use themselves were an error, and repeated ones were lost."""
    person = site.signed_in()
    assert f"/v1/{plural}&#39;" in person.get(f"/ui/{plural}")
    for query in ("_block_vars=1", "_Context__self=1", "path=1", "tag=a&tag=b"):
        page = person.get(f"/ui/{plural}?{query}")
        assert f"/v1/{plural}?{query}'" in html.unescape(page)


def test_an_attribute_is_edited_and_a_conflict_keeps_both(site: Site) -> None:
    person = site.signed_in()
    path = "/ui/attributes/activity.lastSeenAt"
    page = person.get(path)
    fields = {
        "etag": editor_field(page, "etag"), "description": "When we saw them.", "reason": "clearer", "data_type": "integer",
        "classification": "internal", "encryption": "none", "authorization_level": "0", "policy": "latest", "status": "active",
        "indexable": "on", "name": "Seen",
    }  # fmt: skip
    saved = person.post(path, fields)
    assert "When we saw them." in saved
    assert "clearer" in saved
    wrong = person.post(path, fields | {"authorization_level": "1000"}, 422)
    assert editor_field(wrong, "etag") == fields["etag"]
    late = person.post(path, fields | {"description": "Mine."}, 412)
    assert "Mine." in late
    assert "When we saw them." in late
    fresh = fields | {"etag": editor_field(person.get(path), "etag")}
    wrong = person.post(path, fresh | {"time": "date"}, 422)
    assert "date need string" in wrong
    for time in ("milliseconds", ""):
        fresh["time"] = time
        saved = person.post(path, fresh)
        assert f'<option value="{time}" selected>' in saved
        fresh["etag"] = editor_field(saved, "etag")
    wrong = person.post(path, fresh | {"policy": "source_priority"}, 422)
    assert "aria-invalid" in wrong
    assert "most trusted" in wrong


def seen(page: str) -> str:
    """What the button below the consequences sends."""
    found = re.search(r'name="seen" value="([0-9a-f]{64})"', page)
    assert found
    return found[1]


def test_weaker_protection_waits_for_a_second_person(site: Site) -> None:
    person = site.signed_in()
    path = "/ui/attributes/address.shipping.line1"
    fields = {
        "etag": editor_field(person.get(path), "etag"), "data_type": "string", "classification": "internal",
        "encryption": "none", "authorization_level": "0", "policy": "latest", "status": "active", "reason": "open it",
    }  # fmt: skip
    shown = person.post(path, fields)
    assert "stay sealed" in shown
    assert not site.api().get("/v1/policy-changes?status=pending").json()["items"]
    assert "waits for a second person" in person.post(path, fields | {"seen": seen(shown)})
    assert "Protected" in person.get(path)


def test_consequences_are_shown_before_they_are_saved(site: Site) -> None:
    person = site.signed_in()
    path = "/ui/attributes/activity.platform"
    site.api().put(
        "/v1/attributes/activity.platform", json={"path": "activity.platform", "data_type": "string"}
    )
    site.api().put("/v1/views/devices", json={"name": "devices", "attributes": {"on": "activity.platform"}})
    fields = {
        "etag": editor_field(person.get(path), "etag"), "data_type": "string", "classification": "confidential",
        "encryption": "protected", "authorization_level": "60", "policy": "latest", "status": "active", "reason": "private",
    }  # fmt: skip
    shown = person.post(path, fields)
    for expected in ("devices", "re-encrypt", "the profiles", "private"):
        assert expected in shown
    assert site.api().get("/v1/attributes/activity.platform").json()["version"] == 1
    # What would happen by now is something else: it is shown again.
    again = person.post(path, fields | {"authorization_level": "70", "seen": seen(shown)})
    assert seen(again) != seen(shown)
    assert site.api().get("/v1/attributes/activity.platform").json()["version"] == 1
    assert "re-encrypt" in person.post(path, fields | {"seen": seen(shown)})
    assert site.api().get("/v1/attributes/activity.platform").json()["encryption"] == "protected"


def test_the_lineage_is_a_picture_and_a_list(site: Site) -> None:
    change = {"path": "identity.userId", "data_type": "string", "source": "segment", "first_event": "s/0/1"}
    site.api(Role.PIPELINE).patch("/v1/schema", json={"changes": [change]}).raise_for_status()
    page = site.signed_in().get("/ui/attributes/identity.userId")
    picture, _, below = page.partition('<svg role="img"')[2].partition("</svg>")
    for spec in ("shop-segment", "shop-amplitude"):
        assert spec in picture
        assert f'href="/ui/specs/{spec}"' in below
    assert "user_id" in below
    assert "Last seen" in page


def test_a_spec_is_checked_as_one_types(site: Site) -> None:
    person = site.signed_in()
    text = editor_field(person.get(EDITOR), "text")
    wrong = person.post(
        f"{EDITOR.removesuffix('/edit')}/check", {"text": text.replace('"=trim"', '"=trimm"')}
    )
    at = next(number for number, line in enumerate(text.splitlines(), 1) if '"=trim"' in line)
    assert f'data-line="{at}"' in wrong
    assert "did you mean" in wrong
    assert 'data-line="1"' in person.post(f"{EDITOR.removesuffix('/edit')}/check", {"text": "{"})
    shown = person.post(f"{EDITOR.removesuffix('/edit')}/check", {"text": text, "sample": json.dumps(EVENT)})
    assert "3474" in shown
    assert "is sealed" in shown
    assert "ictoria" not in shown
    assert "/type" in shown


def test_a_verdict_on_hidden_texts_says_what_judges_the_real_event(site: Site) -> None:
    person = site.signed_in()
    text = editor_field(person.get(EDITOR), "text")
    tried = []
    for hidden in ("sealed", "shown"):
        sample = json.dumps(EVENT | {"timestamp": "no time", "note": hidden})
        tried.append(person.post(f"{EDITOR.removesuffix('/edit')}/check", {"text": text, "sample": sample}))
    assert ["would be set aside" in each for each in tried] == [True, True]
    assert ["maps the real events" in each for each in tried] == [True, False]


def test_the_editor_is_offered_words(site: Site) -> None:
    person = site.signed_in(Role.READER)
    offered = json.loads(person.get("/ui/completions?kind=path&q=identity.e"))
    assert [each["name"] for each in offered["items"]] == ["identity.email"]
    assert site.api(Role.READER).get("/v1/completions?kind=path&q=identity.e").json() == offered
    site.signed_in(Role.PROFILES).get("/ui/completions?kind=path", 403)


def test_the_preview_is_a_call_too(site: Site) -> None:
    definition = json.loads(editor_field(site.signed_in().get(EDITOR), "text"))
    answer = site.api().post("/v1/specs/preview", json={"definition": definition, "payload": EVENT}).json()
    values = {each["path"]: each for each in answer["values"]}
    assert values["identity.userId"]["value"] == "3474"
    assert values["identity.email"] | {"identifier": None} == {
        "path": "identity.email", "value": None, "is_protected": True, "is_new": False, "looks_like": None, "identifier": None,
    }  # fmt: skip
    assert "/type" in answer["unread"]
    assert "ictoria" not in json.dumps(answer)
    lost = (
        site.api()
        .post("/v1/specs/preview", json={"definition": definition, "payload": {"a": "ictoria"}})
        .json()
    )
    assert lost["problem"]
    assert "ictoria" not in json.dumps(lost)
    broken = {"definition": definition, "payload": {"a": "\ud800"}}
    answer = site.api().post(
        "/v1/specs/preview", content=json.dumps(broken), headers={"Content-Type": "application/json"}
    )
    assert (answer.status_code, answer.json()["pointer"]) == (422, "/payload/a")


def test_who_drafts_does_not_publish(site: Site) -> None:
    analyst = site.signed_in(Role.ANALYST)
    page = analyst.get("/ui/specs/shop-segment/edit")
    draft = {"etag": editor_field(page, "etag"), "reason": "mine"}
    draft["text"] = editor_field(page, "text").replace('"description": "', '"description": "By an analyst. ')
    analyst.post("/ui/specs/shop-segment/publish", draft, 403)
    assert "By an analyst" not in analyst.get("/ui/specs/shop-segment/edit")
    analyst.post("/ui/specs/shop-segment/publish", draft | {"act": "draft"})
    assert "By an analyst" in analyst.get("/ui/specs/shop-segment/edit")


def test_a_spec_is_published_and_two_editors_lose_nothing(site: Site) -> None:
    ann, bob = site.signed_in(), site.signed_in()
    place = "/ui/specs/shop-orders"
    pages = [person.get(f"{place}/edit") for person in (ann, bob)]
    texts = [editor_field(page, "text") for page in pages]
    mine = [
        text.replace('"description": "', f'"description": "By {who}. ')
        for text, who in zip(texts, ("Ann", "Bob"), strict=True)
    ]
    fields = [
        {"etag": editor_field(page, "etag"), "text": text} for page, text in zip(pages, mine, strict=True)
    ]
    assert "Give a reason" in ann.post(f"{place}/publish", fields[0], 422)
    published = ann.post(f"{place}/publish", fields[0] | {"reason": "her reason"})
    assert "Published shop-orders@2" in published
    assert "her reason" in published
    assert editor_field(bob.post(f"{place}/publish", fields[1], 422), "etag") == fields[1]["etag"]
    conflict = bob.post(f"{place}/publish", fields[1] | {"reason": "his"}, 412)
    assert "By Ann." in conflict
    assert "By Bob." in editor_field(conflict, "text")
    again = {"etag": editor_field(conflict, "etag"), "text": editor_field(conflict, "text"), "reason": "his"}
    assert "Published shop-orders@3" in bob.post(f"{place}/publish", again)
    assert site.api().get("/v1/specs/shop-orders").json()["active_version"] == 3


def test_what_is_saved_while_the_editor_opens_is_not_overwritten(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by review: the editor had the text of one version, and the ETag of the next."""
    admin, person = site.api(), site.signed_in()
    body: dict[str, Any] = {
        "name": "raced", "source": "raced", "status": "active", "operations": [{"operation": "shift", "spec": {"u": "u"}}],
        "identifiers": [{"type": "user_id", "path": "u", "primary": True}],
    }  # fmt: skip

    def save(*_: object) -> str:
        admin.put("/v1/specs/raced?reason=save", json=body).raise_for_status()
        body["description"] = "Later."
        return ""

    save()
    monkeypatch.setattr(specs, "sample_of", save)
    page = person.get("/ui/specs/raced/edit?dead_letter=1")
    assert "Later." not in editor_field(page, "text")
    fields = {name: editor_field(page, name) for name in ("etag", "text")}
    conflict = person.post("/ui/specs/raced/publish", fields | {"reason": "mine"}, 412)
    assert "Later." in conflict


def test_publishing_what_shows_protected_values_waits(site: Site) -> None:
    person = site.signed_in()
    place = "/ui/specs/shop-orders"
    page = person.get(f"{place}/edit")
    text = editor_field(page, "text")
    exposing = text.replace('"guest": "guest"', '"guest": "guest", "line": "shipping.line1"')
    assert exposing != text
    assert "second person" in person.post(f"{place}/check", {"text": exposing})
    before = site.api().get("/v1/specs/shop-orders").json()["active_version"]
    fields = {"etag": editor_field(page, "etag"), "text": exposing, "reason": "for the couriers"}
    shown = person.post(f"{place}/publish", fields)
    assert "waits for approval" in shown
    # Other tests of this service ask for changes too.
    assert re.search('href="/ui/policy-changes/[0-9]+"', shown)
    assert "orders.last.line" in shown
    assert "Published" not in shown
    assert site.api().get("/v1/specs/shop-orders").json()["active_version"] == before


def test_a_draft_is_not_in_force(site: Site) -> None:
    person = site.signed_in()
    place = "/ui/specs/shop-amplitude"
    page = person.get(f"{place}/edit")
    text = editor_field(page, "text").replace('"description": "', '"description": "Later. ')
    person.post(
        f"{place}/publish",
        {"etag": editor_field(page, "etag"), "text": text, "reason": "try", "act": "draft"},
    )
    record = site.api().get("/v1/specs/shop-amplitude").json()
    assert (record["active_version"], record["latest_version"]) == (1, 2)
    fields = {"version": "2", "etag": editor_field(person.get(place), "etag"), "reason": ""}
    assert "Give a reason" in person.post(f"{place}/activate", fields, 422)
    assert "Published shop-amplitude@2" in person.post(f"{place}/activate", fields | {"reason": "tested"})
    assert "Somebody" in person.post(f"{place}/activate", fields | {"reason": "late"}, 412)
    person.post(f"{place}/activate", fields | {"reason": "none such", "version": "9"}, 404)
    person.post(f"{place}/activate", fields | {"reason": "none such", "version": "x"}, 422)


def test_two_versions_are_compared_and_an_older_one_put_in_force_again(site: Site) -> None:
    admin, person = site.api(), site.signed_in()
    body: dict[str, Any] = {
        "name": "rolled", "source": "rolled", "status": "active", "operations": [{"operation": "shift", "spec": {"u": "u"}}],
        "identifiers": [{"type": "user_id", "path": "u", "primary": True}],
    }  # fmt: skip
    for number in range(1, 5):
        stated = body | {"description": f"number {number}"}
        admin.put(f"/v1/specs/rolled?reason=save+{number}", json=stated).raise_for_status()
    shown = person.get("/ui/specs/rolled?version=4&against=2")
    rows = re.findall(r'class="(added|removed)".*?<code>(.*?)</code>', shown)
    assert [(kind, html.unescape(line).strip(" ,")) for kind, line in rows] == [
        ("removed", '"description": "number 2"'),
        ("added", '"description": "number 4"'),
    ]
    person.get("/ui/specs/rolled?version=4&against=9", 404)
    fields = {"version": "2", "etag": editor_field(shown, "etag"), "reason": "lost half of all sales"}
    back = person.post("/ui/specs/rolled/activate", fields)
    assert admin.get("/v1/specs/rolled").json()["active_version"] == 2
    assert "lost half of all sales" in back.partition(">Versions<")[2]
    # Found by a new user: the next edit began with what had been rolled back.
    assert "number 2" in editor_field(person.get("/ui/specs/rolled/edit"), "text")
    for role in (Role.READER, Role.ANALYST):
        other = site.signed_in(role)
        assert "lost half of all sales" in other.get("/ui/specs/rolled")
        assert "/activate" not in other.get("/ui/specs/rolled")
        other.post("/ui/specs/rolled/activate", fields, 403)
    assert 'id="publish"' not in site.signed_in(Role.ANALYST).get("/ui/specs/rolled/edit")


def test_a_spec_is_generated_from_events_and_saved_as_a_draft(site: Site) -> None:
    person = site.signed_in(Role.ANALYST)
    refunds = [
        {
            "refund_id": f"r{n}",
            "at": f"2024-03-01T00:00:0{n}Z",
            "mail": f"a{n}@example.com",
            "note": "secret-note",
        }
        for n in range(5)
    ]
    sample: dict[str, Any] = {"name": "refunds", "source": "refunds", "events": refunds}
    for role in (Role.READER, Role.VIEWER, Role.PIPELINE):
        assert site.api(role).post("/v1/specs/generate", json=sample).status_code == 403
    site.signed_in(Role.VIEWER).get("/ui/generate", 403)
    answer = site.api(Role.ANALYST).post("/v1/specs/generate", json=sample)
    assert "secret-note" not in answer.text
    assert "example.com" not in answer.text
    draft = answer.json()
    assert draft["definition"]["identifiers"] == [
        {"type": "email", "path": "identity.email", "primary": True, "fallback": False}
    ]
    assert {each["path"]: each["role"] for each in draft["lines"]}["/refund_id"] == "event id"
    assert site.api().post("/v1/specs/generate", json=sample | {"events": []}).status_code == 422
    nobody = sample | {"events": [{"degrees": 21}]}
    assert site.api().post("/v1/specs/generate", json=nobody).json()["pointer"] == "/events"
    typed = {"name": "refunds", "source": "refunds", "events": "\n".join(map(json.dumps, refunds))}
    shown = person.post("/ui/generate", typed)
    assert "identity.email" in shown.replace("<wbr><b>", "")
    assert json.loads(editor_field(shown, "events").split("\n")[0]) == refunds[0]
    assert "line 6" in person.post("/ui/generate", typed | {"events": typed["events"] + "\n{"}, 422)
    assert "name:" in person.post("/ui/generate", typed | {"name": "no name"}, 422)
    assert "name a person" in person.post("/ui/generate", typed | {"events": '{"degrees": 21}'}, 422)
    assert "Saved refunds@1 as a draft" in html.unescape(
        person.post("/ui/generate", typed | {"act": "draft"})
    )
    assert site.api().get("/v1/specs/refunds").json()["active_version"] is None
    assert "another one" in person.post("/ui/generate", typed | {"act": "draft"}, 412)


def test_a_sample_becomes_a_test_case_which_stops_a_publication(site: Site) -> None:
    person = site.signed_in()
    text = editor_field(person.get("/ui/specs/shop-segment/edit"), "text")
    fields = {"act": "case", "text": text, "reason": "r", "sample": json.dumps(EVENT), "etag": ""}
    page = person.post("/ui/specs/shop-segment/edit", fields)
    assert "Added “case 1”" in page
    made = json.loads(editor_field(page, "text"))["cases"][0]
    assert "ictoria" not in json.dumps(made)
    assert "3474" not in json.dumps(made)
    assert made["payload"]["event"] == "Purchase"
    assert json.loads(editor_field(page, "sample")) == EVENT, "the sample stays"
    assert "There is no sample" not in page
    assert "no sample event" in person.post("/ui/specs/shop-segment/edit", fields | {"sample": ""}, 422)
    with_case = editor_field(page, "text")
    assert "It passes" in person.post("/ui/specs/shop-segment/check", {"text": with_case, "sample": ""})
    wrong = with_case.replace('"lastEvent": "Purchase"', '"lastEvent": "Refund"')
    shown = html.unescape(person.post("/ui/specs/shop-segment/check", {"text": wrong, "sample": ""}))
    assert "1 of 1 fail" in shown
    assert 'it gives "Purchase" instead of "Refund"' in shown
    typed = {"text": wrong, "reason": "r", "sample": "", "act": "publish"}
    typed["etag"] = editor_field(person.get(EDITOR), "etag")
    assert "fails" in person.post("/ui/specs/shop-segment/publish", typed, 422)
    saved = person.post("/ui/specs/shop-segment/publish", typed | {"act": "draft"})
    assert "as a draft" in saved
    version = {"version": str(site.api().get("/v1/specs/shop-segment").json()["latest_version"])}
    one = version | {"etag": editor_field(saved, "etag"), "reason": "r"}
    refused = person.post("/ui/specs/shop-segment/activate", one, 422)
    assert "Although a test case fails" in refused
    done = person.post("/ui/specs/shop-segment/activate", one | {"allow_failing_cases": "on"})
    assert "Published shop-segment@" in done
    back = {"version": "1", "etag": site.api().get("/v1/specs/shop-segment").headers["etag"], "reason": "r"}
    person.post("/ui/specs/shop-segment/activate", back)


def test_a_path_is_merged_into_another_by_a_drafted_spec(site: Site) -> None:
    analyst = site.signed_in(Role.ANALYST)
    page = analyst.get("/ui/attributes/identity.email")
    assert "Merge into another attribute" in page
    assert 'formaction="/ui/specs/shop-segment/edit"' in page
    assert "Merge into" not in site.signed_in(Role.VIEWER).get("/ui/attributes/identity.email")
    drafted = analyst.get(f"{EDITOR}?move=identity.email&into=contact.mail")
    assert "Drafted: what stood at" in drafted
    spec = json.loads(editor_field(drafted, "text"))
    assert {"type": "email", "path": "contact.mail"} in spec["identifiers"]
    shown = analyst.post(f"{EDITOR[:-5]}/check", {"text": json.dumps(spec), "sample": json.dumps(EVENT)})
    assert "contact.<wbr><b>mail" in shown
    assert "identity.<wbr><b>email" not in shown
    for into in ("", "identity", SCRIPT):
        refused = analyst.get(f"{EDITOR}?move=identity.email&into={quote(into)}")
        assert "Nothing was moved" in refused
        assert SCRIPT not in refused
    body = {"definition": spec, "path": "contact.mail", "into": "identity.mail"}
    assert site.api(Role.ANALYST).post("/v1/specs/moves", json=body).status_code == 200
    again = site.api(Role.ANALYST).post("/v1/specs/moves", json=body | {"path": "no.such"})
    assert again.json()["pointer"] == "/path"


def test_a_spec_is_begun_empty_or_as_a_copy(site: Site) -> None:
    site.signed_in(Role.VIEWER).get("/ui/specs-new", 403)
    use = {"spec": None, "source": "clinic", "events": 4000, "errors": 4000, "last_used": 1_700_000_000_000}
    site.api(Role.PIPELINE).patch("/v1/schema", json={"changes": [], "uses": [use]}).raise_for_status()
    person = site.signed_in(Role.ANALYST)
    assert "/ui/specs-new?source=clinic" in person.get("/ui/specs")
    page = person.get("/ui/specs-new?source=clinic")
    assert "4,000 events have no active spec" in page
    assert 'name="source" value="clinic"' in page
    typed = {"name": "clinic-visits", "source": "clinic", "event_type": "", "begin": "empty"}
    begun = person.post("/ui/specs-new", typed)
    assert "Saved clinic-visits@1 as a draft" in begun
    assert '"source": "clinic"' in editor_field(begun, "text")
    assert "another one" in person.post("/ui/specs-new", typed, 412)
    assert "name:" in person.post("/ui/specs-new", typed | {"name": "no name"}, 422)
    copied = typed | {
        "name": "clinic-orders",
        "begin": "copy",
        "copied": "shop-orders",
        "event_type": "order",
    }
    assert "Saved clinic-orders@1" in person.post("/ui/specs-new", copied)
    other = site.api().get("/v1/specs/clinic-orders").json()["document"]
    number = site.api().get("/v1/specs/shop-orders").json()["active_version"]
    one = site.api().get(f"/v1/specs/shop-orders/versions/{number}").json()["document"]
    assert one["operations"] == other["operations"]
    assert (other["source"], other["event_type"], other["status"]) == ("clinic", "order", "draft")
    assert "no spec is named" in person.post(
        "/ui/specs-new", copied | {"name": "x-y", "copied": "nothing"}, 404
    )


def test_a_form_that_is_refused_for_want_of_a_right_lists_no_specs(site: Site) -> None:
    person = site.signed_in(Role.PROFILES)
    for begin in ("empty", "copy", "sample"):
        text = person.post("/ui/specs-new", {"name": "mine", "source": "s", "begin": begin}, 403)
        assert "Ask for access" in text
        assert "shop-segment" not in text, begin


def stored_script(site: Site) -> None:
    """Script in every field that a person or an event fills."""
    admin = site.api()
    admin.put(
        f"/v1/attributes/{segment('x.' + SCRIPT)}",
        params={"reason": SCRIPT},
        json={
            "path": f"x.{SCRIPT}",
            "name": SCRIPT,
            "description": SCRIPT,
            "data_type": "string",
            "source": SCRIPT,
        },
    ).raise_for_status()
    spec: dict[str, Any] = {
        "name": "scripted", "description": SCRIPT, "source": SCRIPT, "event_type": SCRIPT, "status": "active",
        "operations": [{"operation": "shift", "spec": {"*": "x.&", SCRIPT: "u"}}],
        "identifiers": [{"type": "user_id", "path": "u", "primary": True}],
    }  # fmt: skip
    admin.put("/v1/specs/scripted", params={"reason": SCRIPT}, json=spec).raise_for_status()


def test_stored_script_is_text_on_every_page(site: Site) -> None:
    stored_script(site)
    person = site.signed_in()
    pages = [
        "/ui/attributes?q=alert",
        f"/ui/attributes/{segment('x.' + SCRIPT)}",
        "/ui/specs",
        "/ui/specs/scripted",
    ]
    pages += [
        "/ui/specs/scripted/edit",
        f"/ui/attributes?q={segment(SCRIPT)}",
        f"/ui/sign-in?next={segment(SCRIPT)}",
    ]
    shown = [person.get(path) for path in pages]
    text = editor_field(person.get("/ui/specs/scripted/edit"), "text")
    payload = {SCRIPT: SCRIPT, "b": {SCRIPT: 1}}
    shown.append(person.post("/ui/specs/scripted/check", {"text": text, "sample": json.dumps(payload)}))
    shown.append(person.post("/ui/specs/scripted/check", {"text": text.replace("shift", SCRIPT[:25])}))
    shown.append(
        person.post("/ui/specs/scripted/publish", {"text": SCRIPT, "sample": SCRIPT, "reason": SCRIPT}, 422)
    )
    shown.append(person.post("/ui/profiles", {"q": SCRIPT}, 503))
    typed = {"name": SCRIPT, "source": SCRIPT, "event_type": SCRIPT, "events": SCRIPT}
    shown.append(person.post("/ui/generate", typed, 422))
    event = {SCRIPT: SCRIPT, "user_id": SCRIPT}
    shown.append(person.post("/ui/generate", typed | {"name": "scripted", "events": json.dumps(event)}))
    for page in shown:
        assert "<script>" not in page
        assert '"onload' not in page
    assert any("⟨U+202E⟩" in page for page in shown)
    assert json.loads(text)["description"] == SCRIPT


def test_protection_that_is_inherited_is_shown(site: Site) -> None:
    nickname = {"path": "identity.name.nick", "data_type": "string", "status": "discovered"}
    site.api().put("/v1/attributes/identity.name.nick", json=nickname).raise_for_status()
    person = site.signed_in()
    listed = person.get("/ui/attributes?q=nick").partition("<tbody>")[2]
    assert "Protected" in listed
    assert "Plain" not in listed
    assert "inherited" in person.get("/ui/attributes/identity.name.nick")


def test_what_a_wheel_needs_is_packaged() -> None:
    stated = (Path(__file__).parents[3] / "pyproject.toml").read_text()
    assert '"ui/templates/*"' in stated
    assert '"ui/static/*"' in stated


def test_without_a_profile_service_the_page_says_how_to_start_one(site: Site) -> None:
    assert "idgraph serve profiles" in site.signed_in().get("/ui/profiles")


def test_an_attribute_says_once_how_it_is_found_and_its_form_knows_the_levels(site: Site) -> None:
    person = site.signed_in()

    def found_by_search(path: str) -> str:
        shown = re.search(
            r"<dt>Found by search</dt><dd>(.*?)</dd>", person.get(f"/ui/attributes/{path}"), re.S
        )
        assert shown
        return shown[1]

    levels = {
        each["encryption"]: each["path"]
        for each in site.api().get("/v1/attributes?limit=200").json()["items"]
        # Other tests of this site leave paths that an address has to escape.
        if each["path"].replace(".", "").isalnum()
    }
    # A ticked field is no promise for what protection keeps out of the index.
    assert "protected" in found_by_search(levels["protected"])
    assert found_by_search(levels["none"]) == "yes"
    page = person.get(f"/ui/attributes/{levels['none']}")
    stated = re.search(r'data-levels="([^"]+)"', page)
    assert stated
    assert json.loads(html.unescape(stated[1]))["restricted"]["authorization_level"] == 80
