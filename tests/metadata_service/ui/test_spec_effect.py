"""The effect of a draft: previewed over the source's own files by the profile service, then published."""

from __future__ import annotations

import json
import re
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from idgraph.app import wiring
from idgraph.app.jobs.threads import JobThreads
from idgraph.app.settings.document import load
from idgraph.client import ProfilesClient
from idgraph.model.snapshots import PinnedSnapshot
from idgraph.web.audit import PURPOSE, AuditFile, AuditLog
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role
from metadata_service.ui import page as page_module
from metadata_service.ui.page import ProfileSource
from profile_service.api.app import create_app as create_profile_app
from profile_service.api.following import Following
from profile_service.api.rights import Rights
from profile_service.service import ProfileService
from sinks.http.metadata import MetadataClient
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.ui.chromium import axe_violations, chromium, signed_in
from tests.metadata_service.ui.site import Person, Site, filled
from tests.retail import EXAMPLE, Pipeline, durable_keys, order
from tests.servers.requirement import required
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


if TYPE_CHECKING:
    from playwright.sync_api import Page

PLACE = "/ui/specs/shop-orders/effect"
LOW = Role.PUBLISHER
"""Somebody whose clearance is too low."""
REVEALER = Role.PRIVACY
"""An admin who may reveal; their token stands under this role."""


@contextmanager
def working_site(folder: Path) -> Iterator[Site]:
    """Both services, on a store that took some orders whose files are still there."""
    (folder / "idgraph.toml").write_text((EXAMPLE / "idgraph.toml").read_text())
    settings = load(folder / "idgraph.toml")
    inbox = folder / "inbox" / "orders"
    inbox.mkdir(parents=True)
    given = [order(number, number) for number in range(1, 31)]
    (inbox / "x.jsonl").write_bytes(b"\n".join(each.value for each in given))
    wiring.prepare_directory(settings)
    Pipeline(settings.directory)  # makes the keyring
    app = create_app(ServiceSettings(f"sqlite:///{folder / 'metadata.db'}"))
    with ExitStack() as stack:
        url = stack.enter_context(serving(app))
        found = filled(stack, app, url)
        database = app.state.service.database
        found.tokens[Role.ADMIN] = create_token(database, "all", Role.ADMIN, clearance=100)
        found.tokens[REVEALER] = create_token(database, "eve", Role.ADMIN, clearance=100, may_reveal=True)
        adapters = stack.enter_context(wiring.opened(settings))
        keys = durable_keys(settings.directory)
        pipeline = Pipeline(settings.directory, keys, adapters.store, adapters.index)
        stack.callback(pipeline.data_keys.close)
        pipeline.process(given)
        following = stack.enter_context(
            Following(stack.enter_context(MetadataClient(url, found.tokens[Role.SERVICE])))
        )
        jobs = JobThreads(settings, lambda: PinnedSnapshot(*following.edition()))
        audit = AuditLog(AuditFile(folder / "audit.jsonl"), pipeline.provider.purpose_key(PURPOSE))
        rights = Rights(jobs=stack.enter_context(jobs))
        service = ProfileService(adapters, following, audit, rights=rights, is_local=True)
        profiles = stack.enter_context(serving(create_profile_app(service)))
        app.state.pages.state.profile_source = ProfileSource(profiles)
        eventually(following.is_ready)
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with working_site(tmp_path_factory.mktemp("effect")) as found:
        yield found


def draft(site: Site, **changed: str) -> str:
    """The saved spec of orders, with more attributes."""
    content = site.api().get("/v1/specs/shop-orders").json()["document"]
    content["operations"][0]["spec"] |= changed
    return json.dumps({name: content[name] for name in content.keys() - {"version", "created", "status"}})


def run(person: Person, text: str, place: str = PLACE, **fields: str) -> str:
    """The page of a preview that has ended."""
    fields = {"text": text, "act": "run"} | fields
    found: list[str] = []

    def has_ended() -> bool:
        found[:] = [person.post(place, fields)]
        job = re.search(r'name="job" value="([^"]+)"', found[0])
        assert job, found[0]
        fields.update(job=job[1], act="look")
        return "<progress" not in found[0]

    eventually(has_ended)
    return found[0]


def publish_button(page: str) -> str:
    found = re.search(r"<button[^>]*id=\"publish\"[^>]*>", page)
    assert found
    return found[0]


def test_a_draft_is_previewed_and_can_be_published(site: Site) -> None:
    page = run(site.signed_in(), draft(site, **{"orders.count": "cart.items"}))
    assert re.search(r"<b>30</b> events changed<small>100 %, exact", page)
    assert re.search(r"<b>\+1 .0</b>", page)
    assert "disabled" not in publish_button(page)
    assert not re.search(r"[\w.]+@example", page)


def test_what_stands_against_publishing_has_to_be_agreed(site: Site) -> None:
    page = run(site.signed_in(), draft(site, **{"contact.who": "customer.name.first"}))
    assert '<li class="bad"><b>30</b> events that expose a value' in page
    assert 'name="agreed" required' in page
    assert "Waits for a second person" in page
    assert "Ann" not in re.sub(r"<textarea.*?</textarea>", "", page, flags=re.DOTALL)


def test_who_may_reveal_counts_on_what_a_draft_computes(site: Site) -> None:
    """Found by review: a draft that asked whether a protected name begins so was answered by its effect."""
    text = draft(site, **{"contact.flag": "starts_with(customer.name.first, 'A')"})
    page = run(site.signed_in(), text)
    assert "30 events are left out." in page
    assert "<b>0</b> events changed" in page
    assert "Count them too" not in page
    refused = {"text": text, "act": "reveal", "reason": "a trial"}
    assert "may not reveal" in site.signed_in().post(PLACE, refused)
    officer = site.signed_in(REVEALER)
    assert "Count them too" in run(officer, text)
    assert "needs a `purpose`" in officer.post(PLACE, refused | {"reason": ""})
    page = run(officer, text, act="reveal", reason="a trial")
    assert "<b>30</b> events changed" in page


def test_a_preview_of_another_draft_or_version_is_run_again(site: Site) -> None:
    person, text = site.signed_in(), draft(site, **{"orders.count": "cart.items"})
    page = run(person, text)
    job = re.search(r'name="job" value="([^"]+)"', page)
    assert job
    other = {"text": draft(site), "job": job[1], "act": "look"}
    assert "disabled" in publish_button(person.post(PLACE, other))
    etag = site.api().get("/v1/specs/shop-orders").headers["etag"]
    published = {"text": draft(site, **{"orders.size": "cart.items"}), "reason": "sizes", "act": "publish"}
    person.post("/ui/specs/shop-orders/publish", published | {"etag": etag})
    later = person.post(PLACE, {"text": text, "job": job[1], "act": "look"})
    assert "disabled" in publish_button(later)
    assert "run it again" in later


def test_a_preview_can_be_stopped_and_a_stored_version_previewed(site: Site) -> None:
    person, text = site.signed_in(), draft(site)
    started = person.post(PLACE, {"text": text, "act": "run"})
    job = re.search(r'name="job" value="([^"]+)"', started)
    assert job
    person.post(PLACE, {"text": text, "job": job[1], "act": "stop"})
    eventually(lambda: "<progress" not in person.get(f"{PLACE}/{job[1]}"))
    assert "Run the preview" in person.get(f"{PLACE}?version=1")
    person.get(f"{PLACE}?version=99", 404)


def test_no_preview_is_started_of_a_spec_that_nobody_saved(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by review: its job ran, and the page said that there is no such spec."""
    text = json.dumps(json.loads(draft(site)) | {"name": "unsaved"})
    person = site.signed_in()
    with socket.create_server(("127.0.0.1", 0)) as unasked:
        unasked.setblocking(False)
        source = ProfileSource(f"http://127.0.0.1:{unasked.getsockname()[1]}")
        monkeypatch.setitem(site.app.state.pages.state._state, "profile_source", source)
        person.post("/ui/specs/unsaved/effect", {"text": text, "act": "run"}, 404)
        with pytest.raises(BlockingIOError):
            unasked.accept()


def test_what_is_missing_is_named(site: Site) -> None:
    text = draft(site)
    low = site.signed_in(LOW)
    page = low.post(PLACE, {"text": text, "act": "run"})
    assert "clearance 100" in page
    assert 'name="agreed" required' in page
    low.post(PLACE, {"text": "{", "act": "run"}, 422)
    pages = site.app.state.pages.state
    known, pages.profile_source = pages.profile_source, None
    try:
        assert "idgraph serve profiles" in site.signed_in().post(PLACE, {"text": text, "act": "run"})
    finally:
        pages.profile_source = known
    elsewhere = json.dumps(json.loads(text) | {"source": "nowhere"})
    assert "no_spec" in run(site.signed_in(), elsewhere)
    amplitude = site.api().get("/v1/specs/shop-amplitude").json()["document"]
    unread = json.dumps(
        {name: amplitude[name] for name in amplitude.keys() - {"version", "created", "status"}}
    )
    assert "No event of this spec" in run(site.signed_in(), unread, "/ui/specs/shop-amplitude/effect")
    site.signed_in(Role.VIEWER).post(PLACE, {"text": text, "act": "run"}, 403)


@pytest.mark.parametrize(("act", "limit"), [("run", "START_SECONDS"), ("look", "SECONDS")])
def test_only_a_start_is_waited_for_long(
    site: Site, act: str, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by review: each look at a preview kept a thread for a minute where the profile service hung."""
    person = site.signed_in()
    fields = {"csrf": person.csrf(), "text": draft(site), "job": "1", "act": act}
    for each in ("START_SECONDS", "SECONDS"):
        monkeypatch.setattr(page_module, each, 0.1 if each == limit else 3600.0)
    # All other tests of pages wait longer.
    monkeypatch.setattr(
        ProfileSource, "client", lambda source, token, seconds: ProfilesClient(source.url, token, seconds)
    )
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        source = ProfileSource(f"http://127.0.0.1:{port}")
        monkeypatch.setitem(site.app.state.pages.state._state, "profile_source", source)
        answer = person.client.post(PLACE, data=fields, timeout=10)
    assert "ReadTimeout" in answer.text


def test_the_editor_opens_again_with_the_draft(site: Site) -> None:
    fields = {"text": draft(site, note="order_id"), "reason": "because", "etag": '"1"'}
    page = site.signed_in().post("/ui/specs/shop-orders/edit", fields)
    for each in ("&#34;note&#34;", "because", "&#34;1&#34;"):
        assert each in page


def test_the_list_says_what_no_spec_maps(site: Site) -> None:
    assert "Events and fields that no spec maps" not in site.signed_in().get("/ui/specs")
    said = {"version": 1, "events": 1234, "errors": 5, "last_used": 1_709_251_200_000}
    fields = {"/cart/<coupon>": False, "/cart/total": True}
    uses = [
        said | {"spec": "shop-amplitude", "source": "amplitude", "fields": fields},
        said | {"spec": None, "source": "web"},
    ]
    site.api(Role.PIPELINE).patch("/v1/schema", json={"changes": [], "uses": uses}).raise_for_status()
    page = site.signed_in().get("/ui/specs")
    for each in ("about 5 events", "/cart/&lt;coupon&gt;", "1,234", "1 Mar 2024"):
        assert each in page
    assert "/cart/total" not in page


@pytest.fixture
def page(site: Site) -> Iterator[Page]:
    with (
        required("playwright", "playwright"),
        chromium() as browser,
        signed_in(browser, site, viewport={"width": 1440, "height": 900}) as found,
    ):
        yield found


@pytest.mark.process
def test_a_draft_goes_from_the_editor_by_its_effect_into_force(page: Page) -> None:
    page.goto("/ui/specs/shop-orders/edit")
    text = page.locator("#text").input_value()
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text.replace('"cart.items"', '"to_string(cart.items)"'))
    page.get_by_text("The spec compiles").first.wait_for()
    page.get_by_role("button", name="Preview effect").click()
    page.get_by_text("Its preview is up to date").wait_for()
    row = page.get_by_role("row", name="orders.last.items").first
    assert "retyped" in row.inner_text()
    assert axe_violations(page) == []
    page.get_by_label("Reason").fill("numbers as text")
    page.get_by_role("button", name="Publish", exact=True).click()
    page.get_by_text("Published shop-orders@").wait_for()


def test_a_draft_without_events_to_preview_is_published_by_who_agrees(site: Site) -> None:
    person = site.signed_in()
    content = json.loads(draft(site)) | {"name": "museum-visits", "source": "museum"}
    site.api().put(
        "/v1/specs/museum-visits?reason=first", json=content | {"status": "draft"}
    ).raise_for_status()
    page = person.post("/ui/specs/museum-visits/effect", {"text": json.dumps(content), "act": "run"})
    assert "answered 422" not in page
    assert "disabled" not in publish_button(page)
    assert 'name="agreed" required' in page
