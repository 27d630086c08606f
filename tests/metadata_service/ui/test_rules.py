"""Identity rules as a page: problems at their places, the effect before a version is published, and the way back."""

from __future__ import annotations

import html
import json
import re

import pytest

from metadata_service.storage.tokens import Role, list_tokens
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.ui.site import Person, Site, Whole
from tests.metadata_service.ui.test_deciding import form
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


RULES = "/ui/rules"
STRICT = {"namespaces": {"user_id": {"unique": True}, "email": {"max": 1}}, "hub_limit": 2}


@pytest.fixture
def publisher(whole: Whole) -> Person:
    """Somebody who publishes and sees all profiles."""
    return signed_in(whole, "publisher", Role.PUBLISHER, 100)


def signed_in(whole: Whole, name: str, role: Role, clearance: int = 0) -> Person:
    client = whole.site.browser()
    database = whole.site.app.state.service.database
    token = create_token(database, f"{name} {len(list_tokens(database))}", role, None, clearance)
    assert client.post("/ui/sign-in", data={"token": token}).status_code == 200
    return Person(client)


def fields(page: str) -> dict[str, str]:
    """The form with the draft, as a browser sends it."""
    text = re.search(r'<textarea id="rules-text".*?>\n?(.*?)</textarea>', page, re.S)
    reason = re.search(r'id="reason"[^>]* value="([^"]*)"', page)
    job = re.search(r'name="job" value="([^"]*)" form="draft"', page)
    assert text
    found = form(page, RULES) | {"text": html.unescape(text[1])}
    found |= {"reason": html.unescape(reason[1])} if reason else {}
    return found | ({"job": job[1]} if job else {})


def previewed_by(person: Person, draft: dict[str, str]) -> str:
    """The page of a draft once its preview is done, however long that takes."""
    page = person.post(RULES, draft | {"act": "run"})

    def is_done() -> bool:
        nonlocal page
        if "refused links" not in page:
            sent = fields(page)
            page = person.post(RULES, sent | {"act": "look" if sent.get("job") else "run"})
        return "refused links" in page

    eventually(is_done)
    return page


def test_rules_are_previewed_published_and_taken_back(publisher: Person, whole: Whole) -> None:
    page = publisher.get(RULES)
    assert "zero_padded" in page
    draft = fields(page) | {"text": json.dumps(STRICT), "reason": "kiosks"}
    unseen = publisher.post(RULES, draft | {"act": "publish"}, 422)
    assert "Nobody has seen" in unseen
    previewed = previewed_by(publisher, draft)
    assert "refused links" in previewed
    assert "exact" in previewed
    ready = fields(previewed)
    assert json.loads(ready["text"]) == STRICT
    # Another draft than the one that was previewed.
    other = ready | {"text": json.dumps(STRICT | {"hub_limit": 3}), "act": "publish"}
    assert "Nobody has seen" in publisher.post(RULES, other, 422)
    assert "Give a reason" in publisher.post(RULES, ready | {"act": "publish", "reason": " "}, 422)
    done = publisher.post(RULES, ready | {"act": "publish"})
    assert "Published version" in done
    assert "kiosks" in done
    assert whole.site.api().get("/v1/identity-rules").json()["document"] == STRICT
    stale = publisher.post(RULES, ready | {"act": "publish", "text": "{}", "agreed": "on"}, 412)
    assert "Somebody changed it meanwhile" in stale
    back = fields(publisher.get(f"{RULES}?from=0"))
    assert back["reason"] == "back to the defaults"
    assert "zero_padded" in back["text"]
    again = publisher.post(RULES, back | {"act": "publish", "agreed": "on"})
    assert "Published version" in again
    version = whole.site.api().get("/v1/identity-rules").json()["version"]
    assert json.loads(fields(publisher.get(f"{RULES}?from={version - 1}"))["text"]) == STRICT
    publisher.get(f"{RULES}?from=99", 404)


def test_problems_stand_at_their_places(publisher: Person) -> None:
    wrong = (
        '{"namespaces": {"email": {"max": 0}},\n "hub_limit": 5,\n "limits": [{"namespace": "x", "max": 1}]}'
    )
    page = publisher.post(RULES, {"text": wrong, "act": "check"}, 422)
    assert "/namespaces/email/max" in page
    assert fields(page)["text"] == wrong
    unknown = wrong.replace('"max": 0', '"max": 1')
    page = publisher.post(RULES, {"text": unknown, "act": "run"}, 422)
    assert "line 3" in page
    assert "/limits/0/namespace" in page
    assert "no error" in publisher.post(RULES, {"text": "{}", "act": "check"})
    assert "not JSON" in publisher.post(RULES, {"text": "{", "act": "publish"}, 422)


def test_who_may_not_preview_is_told_and_who_may_not_publish_does_not(whole: Whole) -> None:
    low = signed_in(whole, "low publisher", Role.PUBLISHER, 10)
    assert "clearance 100" in low.post(RULES, {"text": "{}", "act": "run"})
    analyst = signed_in(whole, "analyst", Role.ANALYST, 100)
    assert 'value="publish"' not in analyst.get(RULES)
    assert "exact" in previewed_by(analyst, {"text": "{}"})
    analyst.post(RULES, {"text": "{}", "act": "publish", "reason": "x", "agreed": "on"}, 403)
    viewer = signed_in(whole, "viewer", Role.VIEWER)
    assert 'value="run"' not in viewer.get(RULES)
    for act in ("check", "run", "publish"):
        viewer.post(RULES, {"text": "{}", "act": act, "reason": "x"}, 403)
    viewer.get(f"{RULES}/previews/1", 403)


def test_types_of_identifiers_in_use_without_a_rule_are_listed(site: Site) -> None:
    admin, api = site.signed_in(), site.api()
    before = re.search(r"In use without a rule(.*?)</p>", admin.get(RULES), re.S)
    assert "seat_card" not in (before[1] if before else "")
    stated = {
        "source": "theatre",
        "event_type": "*",
        "operations": [{"operation": "jmespath", "spec": {"identity.seat": "seat"}}],
        "identifiers": [{"type": "seat_card", "path": "identity.seat", "primary": True}],
    }
    body = {"name": "theatre-cards", **stated}
    api.put("/v1/specs/theatre-cards?reason=first", json=body | {"status": "draft"}).raise_for_status()
    assert "seat_card" not in admin.get(RULES)
    etag = api.get("/v1/specs/theatre-cards").headers["etag"]
    active = api.put(
        "/v1/specs/theatre-cards?reason=now", json=body | {"status": "active"}, headers={"If-Match": etag}
    )
    active.raise_for_status()
    found = re.search(r"In use without a rule(.*?)</p>", admin.get(RULES), re.S)
    assert found
    assert "seat_card" in found[1]
    assert "<code>email</code>" not in found[1]
