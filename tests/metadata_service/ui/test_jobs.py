"""Batch Operations, without a browser's help."""

from __future__ import annotations

import re

import pytest

from idgraph.model.jobs import JobState
from metadata_service.storage.tokens import Role
from metadata_service.ui.frame import in_words
from metadata_service.ui.jobs import subject
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.ui.scripted_jobs import CONTENT
from tests.metadata_service.ui.site import Person, Whole
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


SCRIPT = '<script>alert(1)</script>"onload=alert(1)'


@pytest.fixture
def operator(whole: Whole) -> Person:
    person = whole.site.signed_in()
    eventually(lambda: person.client.get("/ui/jobs").status_code == 200)
    return person


def signed_in(whole: Whole, name: str, role: Role = Role.VIEWER, clearance: int = 20) -> Person:
    token = create_token(whole.site.app.state.service.database, name, role, clearance=clearance)
    client = whole.site.browser()
    client.post("/ui/sign-in", data={"token": token})
    eventually(lambda: client.get("/ui/jobs").status_code == 200)
    return Person(client)


def started(whole: Whole, person: Person, kind: str, **fields: str) -> str:
    """The address of a job that a form started."""
    body = {"kind": kind, "reason": "a reason", "csrf": person.csrf(), **fields}
    answer = person.client.post("/ui/jobs", data=body)
    assert answer.status_code == 200, answer.text
    assert whole.jobs.records()[0].origin.why == body["reason"]
    return answer.url.path


def test_a_job_is_started_watched_cancelled_and_resumed(whole: Whole, operator: Person) -> None:
    address = started(whole, operator, "reconcile", repair="on", reason=SCRIPT)
    page = operator.get(address)
    assert "<script>alert" not in page
    assert 'hx-trigger="every' in page
    whole.jobs.step(50)
    assert re.search(r"50 of\s+200 fragments", operator.get(address))
    for refused in ("reconcile", "reindex-all"):
        fields = {"kind": refused, "reason": "again"}
        operator.post("/ui/jobs", fields, 409 if refused == "reconcile" else 422)
    operator.post(f"{address}/cancel", {"reason": "asked for twice"})
    assert whole.jobs.records()[0].is_cancel_requested
    assert "Ending" in operator.get("/ui/jobs?state=running")
    whole.jobs.step(60, JobState.CANCELLED)
    answer = operator.client.get(address, headers={"HX-Request": "true"})
    assert answer.headers["HX-Refresh"] == "true"
    operator.post(f"{address}/cancel", {"reason": "too late"}, 409)
    operator.post(f"{address}/resume", {"reason": "after all"})
    assert len(whole.jobs.records()) == 2
    whole.jobs.step(200, JobState.DONE)


def test_an_export_is_downloaded_by_its_caller_alone(whole: Whole, operator: Person) -> None:
    person = signed_in(whole, "downloading")
    new = person.get("/ui/jobs/new")
    assert 'value="export"' in new
    assert 'value="reindex"' not in new
    address = started(whole, person, "export")
    assert person.client.get(f"{address}/download").status_code == 404
    whole.jobs.step(200, JobState.DONE)
    assert "Download" in person.get(address)
    answer = person.client.get(f"{address}/download")
    assert (answer.content, answer.headers["Content-Type"]) == (CONTENT, "application/x-ndjson")
    assert "attachment" in answer.headers["Content-Disposition"]
    assert operator.client.get(f"{address}/download").status_code == 404
    other = signed_in(whole, "another")
    assert other.client.get(address).status_code == 404
    assert "No job yet" in other.get("/ui/jobs")
    other.post("/ui/jobs", {"kind": "reindex", "reason": "x"}, 403)


def test_an_error_is_shown_to_those_who_see_everything(whole: Whole, operator: Person) -> None:
    address = started(whole, operator, "reindex")
    whole.jobs.error = f"{SCRIPT} in user_id:3474"
    whole.jobs.step(7, JobState.FAILED)
    assert "user_id:3474" not in operator.get(address)
    page = signed_in(whole, "seeing all", Role.ADMIN, 100).get(address)
    assert "user_id:3474" in page
    assert "<script>alert" not in page


def test_without_access_a_page_says_how_to_get_it(whole: Whole) -> None:
    reader = whole.site.signed_in(Role.READER)
    assert "Ask for access" in reader.get("/ui/jobs", 403)
    assert whole.site.browser().get("/ui/jobs").url.path == "/ui/sign-in"
    assert reader.client.post("/ui/jobs", data={"kind": "reindex", "reason": "x"}).status_code == 403


def test_counts_and_subjects_are_written_in_words() -> None:
    job = {"what": {"flow": "shop", "check": True, "protection": "0f" * 32, "repair": False}}
    assert subject(job) == "flow shop, check"
    assert subject({"what": {"columns": ["a.b", "c"], "complete": True}}) == "columns a.b, c, complete"
    assert [in_words(each) for each in ("drift/different", "values/shop.cart_id", "dead_letters")] == [
        "drift: different",
        "values: shop.cart_id",
        "dead letters",
    ]
