"""The profile service's audit log as a page, for privacy officers."""

from __future__ import annotations

import pytest

from idgraph.model.callers import Scope
from metadata_service.storage.tokens import Role
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.ui.site import Person, Whole
from tests.metadata_service.ui.test_profiles import PERSON, person_key, reader
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


AUDIT = "/ui/audit/profiles"


def officer(whole: Whole, name: str, clearance: int) -> Person:
    database = whole.site.app.state.service.database
    token = create_token(database, name, Role.PRIVACY, None, clearance, may_reveal=True)
    client = whole.site.browser()
    client.post("/ui/sign-in", data={"token": token})
    eventually(lambda: client.get(PERSON).status_code == 200)
    return Person(client)


def test_an_officer_sees_who_revealed_what_of_whom_and_why(whole: Whole) -> None:
    high, low = officer(whole, "grace", 100), officer(whole, "low officer", 0)
    fields = {"path": "identity.email", "purpose": "Support", "case": "<b>ticket 4711</b>"}
    high.post(f"{PERSON}/reveal", fields)
    page = high.get(f"{AUDIT}?action=reveal&who=grace")
    assert "identity.email" in page
    assert "Support: &lt;b&gt;ticket 4711&lt;/b&gt;" in page
    assert "ictoria" not in page
    client = whole.site.app.state.pages.state.profile_source.client(str(person_key(whole, high)))
    client.call("POST", "access-requests", body={"identifier": "user_id:3474", "reason": "a letter"})
    client.close()
    assert "Access request" in high.get(AUDIT)
    answer = high.client.post(AUDIT, data={"of": "anonymous_id:609db510", "csrf": high.csrf()})
    assert "ticket 4711" in answer.text
    assert "609db510" not in str(answer.url)
    assert "No act matches" in high.post(AUDIT, {"of": "user_id:none"})
    assert "type:value" in high.post(AUDIT, {"of": "nobody"}, 422)
    assert "identity.email" not in low.get(AUDIT)
    assert "No act matches" in high.get(f"{AUDIT}?who=nobody")
    assert "Chain verified" in high.post(f"{AUDIT}/verify", {})
    assert AUDIT in high.get("/ui/audit")


def test_who_is_no_officer_sees_no_log(whole: Whole) -> None:
    analyst = whole.site.signed_in(Role.ANALYST)
    assert AUDIT not in analyst.get("/ui/audit")
    analyst.get(AUDIT, 403)
    reader(whole, "link decider", 100, Scope.LINKS).get(AUDIT, 403)
