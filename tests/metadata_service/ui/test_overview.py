"""The first page, without a browser's help: each cause once, for those who may act on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import httpx
import pytest

from idgraph.model.jobs import JobKind, JobState, Requester
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role
from metadata_service.ui.page import ProfileSource
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.ui.site import Site, Whole
from tests.metadata_service.ui.test_governing import asked
from tests.retail import raw
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


ALL = "/ui/?beside=true"
SCRIPT = '<script>alert(1)</script>"onload=alert(1)'


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A new installation."""
    app = create_app(ServiceSettings(f"sqlite:///{tmp_path_factory.mktemp('empty') / 'metadata.db'}"))
    with ExitStack() as stack:
        url = stack.enter_context(serving(app))
        tokens = {role: create_token(app.state.service.database, f"the {role}", role) for role in Role}
        yield Site(
            url,
            app,
            tokens,
            lambda: stack.enter_context(
                httpx.Client(base_url=url, follow_redirects=True, timeout=60, trust_env=False)
            ),
        )


def test_a_new_installation_shows_three_steps(empty: Site) -> None:
    page = empty.signed_in(Role.VIEWER).get(ALL)
    assert "Connect a source" in page
    assert "Nothing waits for you" in page
    assert "Nothing waits for you" in empty.signed_in(Role.VIEWER).get("/ui/")
    assert empty.browser().get("/ui/").url.path == "/ui/sign-in"


def test_what_waits_is_shown_to_those_who_may_decide(site: Site) -> None:
    asked(site, "overview.first", SCRIPT)
    address = asked(site, "overview.second")
    officer = site.signed_in(Role.PRIVACY).get(ALL)
    assert "Edits weaken protection" in officer
    assert "/ui/policy-changes" in officer
    assert "<script>alert" not in officer
    # Who asked cannot approve; a viewer decides nothing, and still sees what was changed.
    assert "Edits weaken protection" not in site.signed_in().get(ALL)
    viewer = site.signed_in(Role.VIEWER).get(ALL)
    assert "Nothing waits for you" in viewer
    assert "overview.second" in viewer
    assert address not in viewer


def test_new_attributes_and_proposals_of_events_are_shown(whole: Whole) -> None:
    admin = whole.site.signed_in()
    page = admin.get(ALL)
    assert "Connect a source" not in page
    assert "All undecided" in page
    assert page.count('href="/ui/attributes/') >= 6
    api = whole.site.api()
    proposed = api.get("/v1/attributes?proposed=true&limit=1000").json()["items"]
    everything = api.get("/v1/attributes?limit=1000").json()["items"]
    assert proposed == [each for each in everything if each["proposal"] and each["status"] == "discovered"]
    assert ("New attributes look sensitive" in page) is bool(proposed)
    found = api.get("/v1/changes?action=discovered&action=retired&limit=1000").json()["items"]
    assert {each["action"] for each in found} == {"discovered"}


def test_a_job_that_ended_early_waits_for_who_may_resume_it(whole: Whole) -> None:
    jobs = whole.jobs
    jobs.start(JobKind.RECONCILE, {}, Requester("a flow", "overview"))
    jobs.step(3, JobState.INTERRUPTED)
    admin = whole.site.signed_in()
    eventually(lambda: "A job was interrupted" in admin.client.get(ALL).text)
    assert jobs.records()[0].id in admin.get(ALL)
    viewer = whole.site.signed_in(Role.VIEWER)
    eventually(lambda: "No job yet that you see" in viewer.client.get(ALL).text)
    # It is not asked for again once a later one is done.
    jobs.start(JobKind.RECONCILE, {}, Requester("a flow", "overview"))
    jobs.step(200, JobState.DONE)
    assert "A job was interrupted" not in admin.get(ALL)


def test_dead_letters_wait_for_operators(whole: Whole) -> None:
    found = whole.pipeline.map(raw(b"{")).dead_letters
    whole.letters.put(found)
    admin, viewer = whole.site.signed_in(), whole.site.signed_in(Role.VIEWER)
    address = "/ui/dead-letters?reason=not_json"
    try:
        eventually(lambda: address in admin.client.get(ALL).text)
        assert address not in admin.get("/ui/")
        eventually(lambda: "No job yet that you see" in viewer.client.get(ALL).text)
        assert "/ui/dead-letters" not in viewer.get(ALL)
    finally:
        whole.letters.drop([each.id for each in found])


def test_without_the_profile_service_the_catalogue_is_shown(site: Site) -> None:
    state = site.app.state.pages.state
    state.profile_source = ProfileSource("http://127.0.0.1:9")
    try:
        page = site.signed_in(Role.VIEWER).get(ALL)
    finally:
        state.profile_source = None
    assert "does not answer" in page
    assert "Latest changes" in page
