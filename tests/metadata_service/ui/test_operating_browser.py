"""The main tasks of operators in a real browser, without a serious barrier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from idgraph.model.jobs import JobKind, JobState
from tests.metadata_service.ui.chromium import axe_violations, torn_columns
from tests.metadata_service.ui.site import Whole
from tests.metadata_service.ui.test_browser import browser, page
from tests.metadata_service.ui.test_dead_letters import letters
from tests.metadata_service.ui.test_flows import report_of

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "letters", "page"]

pytestmark = pytest.mark.process


@pytest.mark.usefixtures("letters")
def test_a_dead_letter_is_understood_and_its_like_are_replayed(page: Page, whole: Whole) -> None:
    page.goto("/ui/dead-letters")
    assert axe_violations(page) == []
    page.get_by_label("Since").fill("last week")
    page.get_by_label("Since").press("Enter")
    page.locator("#wrong-since").wait_for()
    assert axe_violations(page) == []
    page.get_by_label("Since").fill("24h")
    page.get_by_label("Reason", exact=True).select_option("transform_failed")
    page.wait_for_url("**reason=transform_failed**")
    page.get_by_role("link", name="file:orders/x.jsonl#701").click()
    page.locator(".record .cause").wait_for()
    assert axe_violations(page) == []
    page.get_by_role("link", name="Open in the spec editor").click()
    page.get_by_text("This event would be set aside").wait_for()
    page.go_back()
    page.get_by_role("link", name="Make a test case").click()
    page.get_by_text("The dead letter is the sample event").wait_for()
    sample = page.get_by_label("Sample event")
    sample.fill(sample.input_value().replace('"soon"', '"2024-03-01T10:00:00Z"'))
    page.get_by_role("button", name="Make a test case").click()
    page.get_by_text("Added “case 1”").wait_for()
    page.get_by_text("It passes").wait_for()
    assert axe_violations(page) == []
    page.locator(".cm-content").click()
    page.keyboard.press("Control+a")
    page.keyboard.insert_text(page.locator("#text").input_value().replace('"case 1"', '"an order"'))
    page.get_by_label("Test cases").get_by_text("an order").wait_for()
    page.goto("/ui/dead-letters")
    page.get_by_label("Reason", exact=True).select_option("missing_id")
    page.get_by_role("button", name="Save this filter").click()
    page.goto("/ui/dead-letters")
    page.get_by_role("link", name="reason missing_id").click()
    page.get_by_role("button", name="Forget this filter").wait_for()
    assert axe_violations(page) == []
    page.get_by_role("link", name="Replay all that match…").click()
    assert axe_violations(page) == []
    page.get_by_label("Reason").fill("the spec takes another id")
    page.get_by_role("button", name="Replay 60").click()
    page.get_by_text("Started").first.wait_for()
    assert whole.jobs.records()[0].kind is JobKind.REPLAY
    whole.jobs.step(60, JobState.DONE)


def test_a_flow_is_paused_and_resumed(page: Page, whole: Whole) -> None:
    folders = report_of(whole)
    page.goto("/ui/flows")
    assert axe_violations(page) == []
    page.get_by_role("link", name="shop").click()
    page.get_by_text("taken to readable").wait_for()
    assert axe_violations(page) == []
    page.get_by_role("link", name="Newest events of").first.click()
    page.get_by_role("link", name="Watch").click()
    page.get_by_role("link", name="Stop watching").wait_for()
    assert axe_violations(page) == []
    page.goto("/ui/flows/shop/sources/segment?watched=true")
    page.get_by_text("is sealed").first.wait_for()
    assert axe_violations(page) == []
    page.goto("/ui/flows/shop")
    page.get_by_label("Reason").fill("the store moves")
    page.get_by_role("button", name="Pause shop").click()
    page.get_by_text("Paused by").wait_for()
    assert folders.is_paused("shop")
    assert axe_violations(page) == []
    page.get_by_label("Reason").fill("it moved")
    page.get_by_role("button", name="Resume shop").click()
    page.get_by_text("It goes on where it ended").wait_for()
    assert not folders.is_paused("shop")
    # The page asks again by itself.
    report_of(whole, age=100)
    page.get_by_text("No report for").wait_for()


@pytest.mark.usefixtures("letters")
def test_every_column_is_shown_with_its_head_or_not_at_all(page: Page, whole: Whole) -> None:
    report_of(whole)
    user = {"name": "ines", "role": "viewer"}
    whole.site.api().post("/v1/users", json=user).raise_for_status()
    places = (
        *(
            "/ui/dead-letters",
            "/ui/attributes",
            "/ui/specs",
            "/ui/users",
            "/ui/rules",
            "/ui/jobs",
            "/ui/audit",
        ),
        *("/ui/flows", "/ui/flows/shop", "/ui/profiles?q=activity.platform=web", "/ui/profiles/user_id:3474"),
        *("/ui/attributes/identity.email", "/ui/keys", "/ui/schema", "/ui/requests", "/ui/sandboxes"),
        *("/ui/profiles/user_id:3474/explain", "/ui/audit/profiles", "/ui/policy-changes"),
    )
    seen = 0
    for path in places:
        page.goto(path)
        for width in (1440, 1280, 900, 390):
            page.set_viewport_size({"width": width, "height": 800})
            assert torn_columns(page) == set(), (path, width)
            seen += page.locator("table.rows").count()
    assert seen > 20
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto("/ui/dead-letters")
    assert page.locator("#letters td.time").first.is_visible()
    # Nothing matches: the pages say where to go on.
    page.goto("/ui/dead-letters?source=nowhere")
    assert axe_violations(page) == []
