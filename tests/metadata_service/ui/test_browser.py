"""Each page's main task in a real browser."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import httpx
import pytest

from idgraph.model.callers import Scope
from idgraph.model.jobs import JobKind, JobState, Requester
from idgraph.model.schema_changes import SchemaChange
from idgraph.model.spec_use import SpecUse
from metadata_service.storage.tokens import Role
from tests.lanes import long
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.ui.chromium import axe_violations, chromium, cut_off, signed_in
from tests.metadata_service.ui.site import EVENT, Whole
from tests.metadata_service.ui.test_definitions import HELLO, crossed
from tests.metadata_service.ui.test_timeline import BUYER, acted
from tests.retail import raw
from tests.servers.requirement import required
from tests.transforms.behaviour.onnx_models import linear

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with required("playwright", "playwright"), chromium() as found:
        yield found


@pytest.fixture
def page(browser: Browser, whole: Whole) -> Iterator[Page]:
    with signed_in(browser, whole.site, viewport={"width": 1440, "height": 900}) as found:
        yield found


def type_spec(page: Page, text: str) -> None:
    """As somebody who pastes over all of it."""
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(text)


def test_a_spec_is_edited_tried_and_published_and_maps_the_next_event(page: Page, whole: Whole) -> None:
    page.get_by_role("link", name="Mapping Specs").click()
    page.get_by_role("link", name="Edit shop-segment").click()
    field = page.locator("#text")
    text = field.input_value()
    type_spec(page, text.replace('"=trim"', '"=trimm"'))
    page.locator(".below", has_text="trimm").wait_for()
    assert page.get_by_role("button", name="Publish").is_disabled()
    assert axe_violations(page) == []
    page.get_by_role("button", name="Replace by trim").click()
    page.get_by_text("The spec compiles").wait_for()
    assert field.input_value() == text
    type_spec(page, text.replace('"platform": {', '"library": "",\n        "platform": {'))
    page.keyboard.press("Control+f")
    page.get_by_role("textbox", name="Find").wait_for()
    page.keyboard.type('"library": "')
    page.keyboard.press("Enter")
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowRight")
    page.keyboard.type("identity.")
    page.get_by_role("option", name="identity.userId").wait_for()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Diff to @1").click()
    page.locator(".cm-changedLine").wait_for()
    type_spec(page, text.replace('"platform": {', '"library": "activity.library",\n        "platform": {'))
    page.get_by_label("Sample event").fill(json.dumps(EVENT | {"library": "1.8.0"}, indent=1))
    row = page.get_by_role("row", name="activity.library")
    row.get_by_text("1.8.0").wait_for()
    assert row.get_by_text("new").is_visible()
    assert "ictoria" not in page.locator("#result").inner_text()
    page.get_by_label("Reason").fill("the library, for support")
    page.get_by_role("button", name="Publish").click()
    page.get_by_text("Published shop-segment@2").wait_for()
    assert page.get_by_text("the library, for support").is_visible()
    whole.process([raw(EVENT | {"messageId": "m-2", "library": "1.8.0"}, source="segment")])
    page.goto("/ui/profiles/user_id:3474")
    shown = page.locator("li", has_text="library").first
    assert "1.8.0" in shown.inner_text()
    assert "shop-segment@2" in shown.inner_text()
    page.goto("/ui/specs/shop-segment")
    page.get_by_text("Roll back to @1…").click()
    page.get_by_label("Reason").fill("support has its own")
    assert axe_violations(page) == []
    page.get_by_role("button", name="Roll back to @1").click()
    page.get_by_text("Published shop-segment@1").wait_for()
    assert page.get_by_text("support has its own").is_visible()


def test_a_spec_is_generated_from_a_file_of_events_and_opened(page: Page) -> None:
    events = [{"returnId": f"r{n}", "at": f"2024-03-01T00:00:0{n}Z", "customer_id": "7"} for n in range(3)]
    page.get_by_role("link", name="Generate Specs").click()
    page.get_by_label("Name of the spec").fill("shop-returns")
    page.get_by_label("Source").fill("returns")
    lines = "\n".join(map(json.dumps, events)).encode()
    page.get_by_label("Or a file").set_input_files(
        {"name": "a.jsonl", "mimeType": "text/plain", "buffer": lines}
    )
    page.wait_for_function("document.querySelector('#events').value.includes('r2')")
    page.get_by_role("button", name="Generate", exact=True).click()
    page.get_by_role("row", name="/customer_id").get_by_text("identifier").wait_for()
    assert axe_violations(page) == []
    page.get_by_role("button", name="Save draft").click()
    page.get_by_text("Saved shop-returns@1 as a draft").wait_for()
    assert '"identity.customerId"' in page.locator("#text").input_value()


def test_a_spec_of_a_new_source_is_begun_with_an_event(page: Page, whole: Whole) -> None:
    whole.client.send_uses([SpecUse(spec=None, source="clinic", events=40, last_used=1_700_000_000_000)])
    page.get_by_role("link", name="Mapping Specs").click()
    page.get_by_role("link", name="New spec").click()
    page.get_by_role("link", name="Choose clinic").click()
    page.get_by_label("Name of the spec").fill("clinic-visits")
    page.get_by_label("Sample events").check()
    page.get_by_label("Events", exact=True).fill('{"visit": "v-1", "email": "a@example.com"}')
    assert axe_violations(page) == []
    page.get_by_role("button", name="Begin").click()
    page.get_by_role("row", name="/email").get_by_text("identifier").wait_for()
    page.get_by_role("button", name="Save draft").click()
    page.get_by_text("Saved clinic-visits@1 as a draft").wait_for()
    page.locator("#result").get_by_text("email").first.wait_for()
    assert '"v-1"' in page.get_by_label("Sample event").input_value()


@pytest.mark.long
def test_an_attribute_is_merged_into_another(page: Page) -> None:
    page.goto("/ui/attributes/activity.platform")
    page.get_by_label("Path of the other attribute").fill("device.platform")
    assert axe_violations(page) == []
    page.get_by_role("button", name="Edit shop-segment").click()
    page.get_by_text("Drafted: what stood at").wait_for()
    page.get_by_label("Sample event").fill(json.dumps(EVENT))
    page.get_by_role("row", name="device.platform").get_by_text('"web"').wait_for()
    assert axe_violations(page) == []


def test_an_attribute_is_found_and_described(page: Page) -> None:
    page.keyboard.press("/")
    page.keyboard.type("customer number")
    page.wait_for_url("**q=customer**")
    page.get_by_role("link", name="identity.userId").click()
    page.get_by_role("link", name="Edit…").click()
    page.get_by_label("Description").fill("The number on the customer's card.")
    page.get_by_label("Owner").fill("support")
    page.get_by_label("Tags").fill("cards, daily")
    page.get_by_label("Reason").fill("asked by support")
    page.get_by_role("button", name="Save").click()
    page.locator(".lead", has_text="The number on the customer's card.").wait_for()
    assert page.get_by_text("asked by support").is_visible()
    assert axe_violations(page) == []
    page.get_by_role("link", name="cards").click()
    page.get_by_role("status").get_by_text("1 attribute").wait_for()
    assert page.get_by_label("cards").is_checked()
    assert axe_violations(page) == []


def test_an_attribute_is_protected_after_its_consequences_were_read(page: Page) -> None:
    page.goto("/ui/attributes/shop.persona")
    page.get_by_text("Filled").wait_for()
    page.get_by_label("Encryption").select_option("protected")
    page.get_by_label("Classification").select_option("confidential")
    page.get_by_label("Reason").fill("it says what somebody likes")
    page.get_by_role("button", name="Save").click()
    effect = page.locator("#effect")
    effect.get_by_text("profiles", exact=False).first.wait_for()
    assert axe_violations(page) == []
    effect.get_by_role("button", name="seal stored values").click()
    page.get_by_text("Saved version").wait_for()
    assert page.locator(".badges").get_by_text("Protected").is_visible()


def test_a_new_attribute_appears_by_itself_and_is_promoted(page: Page, whole: Whole) -> None:
    page.goto("/ui/attributes?q=fresh")
    page.get_by_text("No attribute matches").wait_for()
    page.locator("h1").click()
    changes = [SchemaChange(path="fresh.one", data_type="string", source="crm", first_event="crm/0/1")]
    whole.client.send(changes)
    row = page.get_by_role("row", name="fresh.one")
    row.wait_for()
    row.get_by_role("checkbox").check()
    whole.client.send([changes[0].model_copy(update={"path": "fresh.two"})])
    page.get_by_role("button", name="Show in the list").wait_for()
    assert row.get_by_role("checkbox").is_checked(), "the selection stays"
    page.get_by_placeholder("Reason").fill("ours")
    page.get_by_role("status").filter(has_text="1 selected").wait_for()
    page.get_by_role("button", name="Promote").click()
    page.get_by_text("1 of 1 saved").wait_for()
    assert axe_violations(page) == []


def test_a_segment_is_written_estimated_and_published(page: Page) -> None:
    page.get_by_role("link", name="Segments").click()
    page.get_by_label("Name").last.fill("buyers")
    page.get_by_role("button", name="Write it").click()
    search = page.get_by_label("Search", exact=True)
    search.fill("activity.lastEvent=(")
    page.get_by_role("button", name="Estimate").click()
    page.get_by_role("alert").get_by_role("link", name="/q").click()
    assert search.get_attribute("aria-invalid") == "true"
    assert axe_violations(page) == []
    page.get_by_role("button", name="Edit as JSON").click()
    page.get_by_label("Segment as JSON").fill('{"name": "buyers", "q": "activity.platform=*"}')
    page.get_by_role("button", name="Estimate").click()
    page.locator("#tried").get_by_text("match").wait_for()
    page.get_by_label("Reason").fill("for the newsletter")
    page.get_by_role("button", name="Publish").click()
    page.get_by_text("Published version 1").wait_for()
    assert page.get_by_text("for the newsletter").is_visible()


def test_undecided_attributes_are_purged_after_a_look(page: Page) -> None:
    page.get_by_role("link", name="Schema").click()
    page.get_by_label("Path begins with").fill("shop.")
    page.get_by_role("button", name="Show what would go").click()
    page.get_by_text("would go").wait_for()
    assert axe_violations(page) == []
    page.locator("#reason-purge").fill("not used")
    page.get_by_role("button", name="Purge").click()
    page.get_by_text("Purged").wait_for()


@pytest.mark.long
def test_filters_are_in_the_address_and_the_back_button_undoes_them(page: Page) -> None:
    page.get_by_label("searchable").check()
    page.wait_for_url("**encryption=searchable**")
    page.get_by_role("status").get_by_text("1 attribute").wait_for()
    page.go_back()
    page.get_by_role("link", name="identity.userId").wait_for()


@pytest.mark.long
def test_a_person_is_found_by_an_identifier_which_stays_out_of_the_address(page: Page) -> None:
    page.get_by_role("link", name="Profiles").click()
    page.get_by_label("Search by value").fill("user_id:3474")
    page.keyboard.press("Enter")
    page.wait_for_url("**/ui/profiles/user_id:3474")
    leaf = page.locator("li", has_text="lastSeenAt").first
    assert page.locator("li", has_text="email is sealed").first.is_visible()
    leaf.click()
    assert leaf.get_by_text("shop-segment").first.is_visible()
    page.get_by_label("Filter the values").fill("platform")
    assert leaf.is_hidden()


@pytest.mark.long
def test_a_view_is_asked_for_and_its_end_reminded_of(browser: Browser, page: Page, whole: Whole) -> None:
    admin = whole.site.api()
    view = {"name": "letters", "attributes": {"mail": "identity.email"}}
    admin.put("/v1/views/letters", json=view).raise_for_status()
    token = create_token(whole.site.app.state.service.database, "campaigns", Role.VIEWER)
    with signed_in(browser, whole.site, token, viewport={"width": 1280, "height": 800}) as own:
        own.goto("/ui/views/letters")
        own.get_by_role("link", name="Ask for access").click()
        own.get_by_label("Purpose").fill("the autumn letter")
        own.get_by_label("Until").fill(f"{datetime.now(UTC) + timedelta(days=4):%Y-%m-%d}")
        own.get_by_role("button", name="Ask").click()
        own.get_by_text("Asked.").wait_for()
        assert axe_violations(own) == []
        page.goto("/ui/requests")
        page.get_by_role("link", name="View letters").click()
        page.get_by_label("Reason").fill("until it is sent")
        page.get_by_role("button", name="Grant").click()
        page.get_by_text("Granted.").wait_for()
        assert axe_violations(page) == []
        own.goto("/ui/")
        own.get_by_text("Your access ends").wait_for()
        assert axe_violations(own) == []
        own.get_by_role("link", name="Ask again").click()
        own.get_by_text("You see the view letters until").wait_for()
        assert axe_violations(own) == []


@pytest.mark.parametrize("theme", ["light", *long("dark")])
def test_no_page_has_a_serious_barrier(browser: Browser, whole: Whole, theme: str) -> None:
    acted(whole)
    code = whole.site.app.state.pages.state.sessions.make_link_code(whole.site.tokens[Role.ADMIN])
    with signed_in(browser, whole.site, color_scheme=theme) as page:
        page.goto(f"/ui/sign-in?code={code}")
        page.get_by_role("button", name="Sign in by this link").click()
        page.wait_for_url("**/ui/")
        for path in (
            *(
                "/ui/attributes",
                "/ui/attributes/identity.email",
                "/ui/attributes?q=nothing-like-it",
                "/ui/specs",
            ),
            *(
                "/ui/specs/shop-orders",
                "/ui/specs/shop-orders/edit",
                "/ui/generate",
                "/ui/specs-new",
                "/ui/schema",
                "/ui/views",
                "/ui/segments-new?name=buyers",
                "/ui/activities",
                "/ui/activities-new?name=order",
                "/ui/derived-attributes",
                "/ui/derived-attributes-new?name=orders30d&of=pattern",
                "/ui/models",
                "/ui/triggers",
                "/ui/triggers-new?name=hello",
                "/ui/profiles",
                "/ui/profiles?q=activity.platform=web",
                "/ui/profiles/user_id:3474",
                "/ui/profiles/user_id:3474?tab=json",
                "/ui/profiles/user_id:3474/timeline",
                f"{BUYER}/timeline",
                BUYER,
            ),
            *("/ui/users", "/ui/keys", "/ui/requests", "/ui/sandboxes", "/ui/none", "/ui/sign-in"),
        ):
            page.goto(path)
            assert axe_violations(page) == [], path


def test_the_ledger_of_a_trigger_is_narrowed_to_an_outcome(page: Page, whole: Whole) -> None:
    whole.site.api().put("/v1/triggers/hello", json=HELLO).raise_for_status()
    crossed(whole, "hello")
    page.goto("/ui/triggers")
    page.get_by_role("link", name="1 suppressed").click()
    assert axe_violations(page) == []
    page.get_by_role("link", name="Suppressed 1").press("Enter")
    page.get_by_text("limit: 1 per 7d").wait_for()
    assert page.get_by_text("until").count() == 0


def test_a_derived_attribute_is_tried_before_it_is_published(browser: Browser, whole: Whole) -> None:
    acted(whole)
    database = whole.site.app.state.service.database
    token = create_token(database, "who derives", Role.ADMIN, None, 100, False, (Scope.RULES,))
    with signed_in(browser, whole.site, token) as page:
        page.goto("/ui/derived-attributes/seenTimes")
        page.get_by_label("Condition").fill("what == 'View'")
        page.get_by_role("button", name="Preview the effect").press("Enter")
        page.get_by_text("lose theirs").wait_for()
        assert page.get_by_label("Condition").input_value() == "what == 'View'"
        assert axe_violations(page) == []
        page.get_by_role("button", name="Edit as JSON").click()
        page.get_by_text("Fields", exact=True).click()
        assert axe_violations(page) == []
        page.set_viewport_size({"width": 320, "height": 700})
        assert cut_off(page) == []


def test_a_model_is_added_by_its_file(page: Page) -> None:
    page.goto("/ui/models")
    page.get_by_label("Reason").fill("first")
    page.get_by_label("Name").fill("churn")
    page.get_by_label("File ONNX").set_input_files({"name": "a.onnx", "mimeType": "", "buffer": b"none"})
    page.get_by_role("button", name="Add").click()
    page.get_by_role("alert").get_by_text("no valid ONNX model").wait_for()
    assert page.get_by_label("File ONNX").evaluate("each => each === document.activeElement")
    assert page.get_by_label("Name").input_value() == "churn"
    assert axe_violations(page) == []
    page.get_by_label("File ONNX").set_input_files(
        {"name": "a.onnx", "mimeType": "", "buffer": linear([1, 2])}
    )
    page.get_by_role("button", name="Add").press("Enter")
    page.get_by_role("status").get_by_text("Added the model").wait_for()
    page.get_by_role("row", name="churn").get_by_text("float[2]").wait_for()
    assert axe_violations(page) == []


def test_an_activity_is_written_by_keyboard(page: Page) -> None:
    page.goto("/ui/activities-new?name=typed")
    page.get_by_label("Source").fill("segment")
    page.get_by_label("Fields: name 2").fill("last")
    page.get_by_label("Fields: value 2").fill("activity.lastEvent")
    page.get_by_label("Fields: name 3").fill("platform")
    page.get_by_label("Fields: value 3").fill("activity.platform")
    page.get_by_label("Most").fill("many")
    page.get_by_label("Most").press("Enter")
    page.get_by_role("link", name="/most").wait_for()
    assert page.get_by_label("Most").get_attribute("aria-invalid") == "true"
    assert page.get_by_label("Fields: value 2").input_value() == "activity.platform"
    assert axe_violations(page) == []
    page.get_by_label("Most").fill("50")
    page.get_by_label("Reason").fill("for support")
    page.get_by_role("button", name="Publish").click()
    page.get_by_text("Published version 1").wait_for()


def test_axe_looks_at_what_comes_late(page: Page) -> None:
    """Found by review: it may have looked before htmx began."""

    def late(route: Route) -> None:
        page.wait_for_timeout(300)
        route.continue_()

    page.route("**/htmx.min.js*", late)
    page.route("**/ui/?beside=true", late)
    page.goto("/ui/", wait_until="commit")
    assert axe_violations(page) == []
    assert page.locator("#overview").get_attribute("hx-trigger") is None


@pytest.mark.long
def test_pages_fit_a_narrow_screen(browser: Browser, whole: Whole) -> None:
    acted(whole)
    with signed_in(browser, whole.site, viewport={"width": 320, "height": 700}) as page:
        for path in (
            *("/ui/", "/ui/jobs", "/ui/jobs/new", "/ui/policy-changes", "/ui/audit"),
            "/ui/attributes",
            "/ui/attributes/identity.email",
            "/ui/specs",
            "/ui/generate",
            "/ui/specs-new",
            "/ui/schema",
            "/ui/views-new?name=card",
            "/ui/derived-attributes",
            "/ui/derived-attributes-new?name=orders30d&of=pattern",
            *("/ui/models", "/ui/triggers", "/ui/triggers-new?name=narrow&of=segment", "/ui/activities"),
            "/ui/profiles?q=activity.platform=web",
            "/ui/profiles/user_id:3474",
            "/ui/profiles/user_id:3474?tab=json",
            f"{BUYER}/timeline",
            "/ui/users",
            "/ui/keys",
            "/ui/sandboxes",
            "/ui/sign-in",
        ):
            page.goto(path)
            assert page.evaluate("document.documentElement.scrollWidth") <= 320, path
            assert cut_off(page) == [], path
        page.goto("/ui/specs")
        page.get_by_role("button", name="Menu").click()
        page.get_by_role("link", name="Profiles").click()
        page.wait_for_url("**/ui/profiles")


def test_a_job_is_started_and_watched_until_it_is_done(page: Page, whole: Whole) -> None:
    page.get_by_role("link", name="Batch Operations").click()
    page.get_by_role("link", name="Start a job").first.click()
    assert axe_violations(page) == []
    form = page.get_by_role("form", name="Reconcile")
    form.get_by_label("Repair").check()
    form.get_by_label("Reason").fill("after an outage")
    form.get_by_role("button", name="Reconcile").click()
    page.get_by_role("button", name="Cancel this job").wait_for()
    assert axe_violations(page) == []
    whole.jobs.step(50)
    page.get_by_text("50 of 200 fragments").wait_for()
    whole.jobs.step(200, JobState.DONE)
    page.get_by_role("button", name="Cancel this job").wait_for(state="detached")
    page.get_by_role("link", name="Batch Operations").first.click()
    page.get_by_role("row", name="after an outage").get_by_text("Done").wait_for()
    assert axe_violations(page) == []


def test_a_change_that_waits_is_approved_and_the_chain_verified(page: Page, whole: Whole) -> None:
    path = "govern.browser"
    with httpx.Client(base_url=whole.site.url, trust_env=False) as other:
        token = create_token(whole.site.app.state.service.database, "the other admin", Role.ADMIN)
        other.headers["Authorization"] = f"Bearer {token}"
        body = {"path": path, "data_type": "string", "encryption": "protected"}
        other.put(f"/v1/attributes/{path}", json=body).raise_for_status()
        other.put(f"/v1/attributes/{path}", json=body | {"encryption": "none"}).raise_for_status()
    page.get_by_role("link", name="Policy Changes").click()
    assert axe_violations(page) == []
    page.get_by_role("link", name=path).click()
    page.get_by_text("protected to none").wait_for()
    assert axe_violations(page) == []
    page.get_by_label("Reason").fill("seen the ticket")
    page.get_by_role("button", name="Approve").click()
    page.get_by_role("status").get_by_text("Approved").wait_for()
    page.get_by_role("link", name="Audit").click()
    page.get_by_role("button", name="Verify the chain").click()
    page.get_by_text("Chain verified up to").wait_for()
    assert page.get_by_text("seen the ticket").first.is_visible()
    assert axe_violations(page) == []


def test_an_admin_adds_a_person_who_signs_in_and_makes_a_key(
    browser: Browser, page: Page, whole: Whole
) -> None:
    page.get_by_role("link", name="Users").click()
    page.get_by_role("textbox", name="Name", exact=True).last.fill("grace")
    page.locator(".form #role").select_option("analyst")
    page.get_by_role("button", name="Add user").click()
    password = page.locator("#secret").inner_text()
    assert axe_violations(page) == []
    context = browser.new_context(base_url=whole.site.url)
    try:
        own = context.new_page()
        own.goto("/ui/keys")
        own.get_by_label("User name").fill("grace")
        own.get_by_label("Password", exact=True).fill(password)
        own.get_by_role("button", name="Sign in", exact=True).click()
        own.wait_for_url("**/ui/keys")
        own.get_by_role("textbox", name="Name", exact=True).last.fill("notebook")
        own.get_by_role("button", name="Make key").click()
        assert own.locator("#secret").inner_text().startswith("idg_")
        assert axe_violations(own) == []
    finally:
        context.close()


def test_the_first_page_leads_to_what_waits(page: Page, whole: Whole) -> None:
    whole.jobs.start(JobKind.REENCRYPT, {}, Requester("a flow", "the policy changed"))
    whole.jobs.step(9, JobState.INTERRUPTED)
    page.get_by_role("link", name="Overview").click()
    page.get_by_text("the policy changed").first.wait_for()
    assert axe_violations(page) == []
    page.get_by_role("link", name="Resume: A job was interrupted").first.click()
    page.get_by_label("Reason").fill("after the restart")
    page.get_by_role("button", name="Resume").click()
    page.get_by_role("status").get_by_text("Resumed").wait_for()
    whole.jobs.step(200, JobState.DONE)


def test_access_is_asked_for_and_granted_by_another_person(
    browser: Browser, page: Page, whole: Whole
) -> None:
    asking = create_token(whole.site.app.state.service.database, "growth", Role.VIEWER)
    context = browser.new_context(base_url=whole.site.url)
    try:
        own = context.new_page()
        own.goto("/ui/sign-in?next=/ui/requests%3Fpath%3Didentity.email")
        own.get_by_text("With a token").click()
        own.get_by_label("Token").fill(asking)
        own.get_by_role("button", name="Sign in with it").click()
        own.get_by_label("Purpose").fill("the summer campaign")
        own.get_by_role("button", name="Ask", exact=True).click()
        own.get_by_role("status").get_by_text("Asked.").wait_for()
        assert axe_violations(own) == []
        page.get_by_role("link", name="Requests").click()
        page.get_by_role("row", name="growth").get_by_role("link").click()
        assert axe_violations(page) == []
        page.get_by_label("Reason").fill("until the campaign ends")
        page.get_by_role("button", name="Grant").click()
        page.get_by_role("status").get_by_text("Granted.").wait_for()
        own.reload()
        own.get_by_text("until the campaign ends").wait_for()
    finally:
        context.close()
