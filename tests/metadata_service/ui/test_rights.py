"""One value revealed, access requests, erasures and consents as pages."""

from __future__ import annotations

import json

import pytest

from idgraph.model.callers import Scope
from tests.metadata_service.ui.site import Whole
from tests.metadata_service.ui.test_profiles import PERSON, reader

pytestmark = pytest.mark.slow


REVEAL = f"{PERSON}/reveal?path=identity.email"
MAIL = "victoria@example.com"


def test_one_value_is_revealed_for_a_purpose_that_is_recorded(whole: Whole) -> None:
    person = reader(whole, "revealing", 50, reveal=True)
    page = person.get(PERSON)
    assert "/reveal?path=identity.email" in page
    assert MAIL not in page + person.get(REVEAL)
    asked = {"path": "identity.email", "purpose": "Support", "case": "ticket 4711"}
    for wrong in ({"case": ""}, {"purpose": "curiosity"}):
        assert MAIL not in person.post(f"{PERSON}/reveal", asked | wrong, 422)
    audit = whole.pipeline.folder / "audit.jsonl"
    assert "4711" not in (audit.read_text() if audit.exists() else "")
    answer = person.client.post(f"{PERSON}/reveal", data=asked | {"csrf": person.csrf()})
    assert MAIL in answer.text
    assert answer.headers["Cache-Control"] == "no-store"
    assert answer.headers["Refresh"] == f"60; url={PERSON}"
    line = json.loads(audit.read_text().splitlines()[-1])
    assert (line["caller"], line["purpose"]) == ("revealing", "Support: ticket 4711")
    assert line["attributes"] == ["identity.email"]
    person.post(f"{PERSON}/reveal", asked | {"path": "identity.none"}, 404)
    assert MAIL not in person.get(PERSON)


def test_who_may_not_reveal_is_offered_nothing(whole: Whole) -> None:
    person = reader(whole, "not revealing", 50)
    assert "/reveal" not in person.get(PERSON)
    asked = {"path": "identity.email", "purpose": "Support", "case": "x"}
    assert MAIL not in person.post(f"{PERSON}/reveal", asked, 403)


def test_only_an_officer_serves_rights(whole: Whole) -> None:
    person = reader(whole, "no officer", 100, Scope.LINKS)
    assert "/rights" not in person.get(PERSON)
    person.get(f"{PERSON}/rights", 403)
    for act in ("access-requests", "erasures", "consents"):
        person.post(f"{PERSON}/{act}", {"reason": "x", "typed": "user_id:3474", "purpose": "ads"}, 403)
    assert whole.jobs.erased == []


def test_an_access_request_is_downloaded(whole: Whole) -> None:
    person = reader(whole, "officer", 50, Scope.PRIVACY)
    assert "/rights" in person.get(PERSON)
    person.post(f"{PERSON}/access-requests", {"reason": ""}, 422)
    page = person.post(f"{PERSON}/access-requests", {"reason": "letter of 3 May"})
    assert "Download the document" in page
    address = page.partition('href="/ui/access-requests/')[2].partition('"')[0]
    answer = person.client.get(f"/ui/access-requests/{address}")
    assert answer.json() == {"profile": {"id": "user_id:3474"}}
    assert "attachment" in answer.headers["Content-Disposition"]


def test_an_erasure_shows_what_goes_and_asks_for_an_identifier(whole: Whole) -> None:
    person = reader(whole, "eraser", 50, Scope.PRIVACY)
    page = person.get(f"{PERSON}/rights")
    assert "2024-05-02" in page
    for wrong in ("", "user_id:1", "3474", "user_id:"):
        asked = {"reason": "request 7", "typed": wrong}
        assert "no identifier of the person" in person.post(f"{PERSON}/erasures", asked, 422)
    assert whole.jobs.erased == []
    for typed in ("user_id:0003474", f"email:{MAIL}"):
        done = person.post(f"{PERSON}/erasures", {"reason": "request 7", "typed": typed})
        assert "Download the receipt" in done
    assert [str(each) for each in whole.jobs.erased] == ["user_id:3474", "user_id:3474"]
    address = done.partition('href="/ui/erasures/')[2].partition('"')[0]
    assert person.client.get(f"/ui/erasures/{address}").json()["hash"] == "sha256:7f2c"


def test_a_consent_is_recorded_and_a_household_is_listed(whole: Whole) -> None:
    person = reader(whole, "preferences", 50, Scope.PRIVACY)
    asked = {"purpose": "newsletter", "status": "withdrawn", "source": "telephone"}
    assert "Recorded the decision" in person.post(f"{PERSON}/consents", asked)
    (event,) = whole.consents
    assert json.loads(event)["consents"]["newsletter"]["status"] == "withdrawn"
    assert "consents" in person.post(f"{PERSON}/consents", asked | {"source": ""}, 422)
    assert "member of none" in person.get(f"{PERSON}/rights")
