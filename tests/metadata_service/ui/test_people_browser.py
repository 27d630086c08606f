"""The main tasks of the pages about persons in a real browser, without a serious barrier."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from metadata_service.storage.tokens import Role
from profile_service.api.routes import links
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.ui.chromium import axe_violations, signed_in
from tests.metadata_service.ui.site import EVENT, Whole
from tests.metadata_service.ui.test_browser import browser, page
from tests.retail import raw

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["browser", "page"]

pytestmark = pytest.mark.process


def test_a_person_is_unlinked_and_the_pin_removed(page: Page) -> None:
    page.goto("/ui/profiles/user_id:3474")
    page.get_by_role("img", name="links joined").wait_for()
    assert axe_violations(page) == []
    page.get_by_role("link", name="Explain or unlink…").click()
    page.get_by_label("and").select_option("anonymous_id:609db510")
    page.get_by_role("button", name="Explain").click()
    page.get_by_text("splits them").wait_for()
    assert axe_violations(page) == []
    page.get_by_label("Reason").fill("a shared computer")
    page.get_by_role("button", name="Unlink, 1 pin").click()
    page.get_by_text("Unlinked").wait_for()
    assert axe_violations(page) == []
    page.get_by_role("button", name="Remove the pin…").click()
    page.get_by_label("Reason").fill("it was not shared")
    page.get_by_role("button", name="Remove, 1 pin").click()
    page.get_by_text("Pin removed").wait_for()


def test_a_person_is_found_by_values_and_a_filter(page: Page) -> None:
    page.goto("/ui/profiles")
    page.get_by_label("Search by value").fill("platform = web")
    page.get_by_role("button", name="Search", exact=True).click()
    page.get_by_role("button", name="activity.platform = web instead").click()
    page.get_by_role("button", name=re.compile("^Purchase")).click()
    page.wait_for_function('document.querySelector("#q").value.endsWith(\'lastEvent="Purchase"\')')
    assert axe_violations(page) == []
    page.get_by_label("Sort").select_option("-activity.platform")
    page.wait_for_url("**sort=-activity.platform")
    address = page.url
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Identifiers").wait_for()
    page.locator(".leaves summary").first.click()
    assert axe_violations(page) == []
    page.get_by_role("link", name="JSON").click()
    page.get_by_role("region", name="The profile as JSON").wait_for()
    assert axe_violations(page) == []
    page.go_back()
    page.go_back()
    page.wait_for_url(address)
    page.get_by_role("status").filter(has_text="profiles").wait_for()


def test_the_palette_leads_to_pages_attributes_and_persons(page: Page) -> None:
    page.goto("/ui/specs")
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Page, attribute, spec, profile")
    field.wait_for()
    page.get_by_role("option", name="Overview").wait_for()
    field.fill("lastEvent")
    page.get_by_role("option", name="activity.lastEvent").wait_for()
    assert axe_violations(page) == []
    field.fill("3474")
    page.get_by_role("option", name="user_id 3474").wait_for()
    page.keyboard.press("ArrowDown")
    assert field.get_attribute("aria-activedescendant") == "palette-search"
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="Identifiers").wait_for()
    page.keyboard.press("/")
    field.fill("no such thing")
    page.get_by_role("option", name="Search profiles for no such thing").click()
    page.get_by_role("heading", name="No profile matches").wait_for()
    page.get_by_role("button", name="Find").click()
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.matches('[data-palette]')")


def test_a_refused_link_is_decided_by_keyboard(
    page: Page, whole: Whole, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "LOOKED_AT_ONCE", 150)
    monkeypatch.setattr(links, "MOST_SECONDS", 0.0)
    for number, user in enumerate(("7101", "7102", "7103"), 1):
        content = EVENT | {
            "messageId": f"m-{user}",
            "userId": user,
            "anonymousId": f"a-{user}",
            "timestamp": f"2024-03-16T0{number}:00:00Z",
            "traits": {"email": "shared@example.com"},
        }
        whole.process([raw(content, source="segment")])
    page.goto("/ui/profiles")
    # The first page of the API is empty: the list looks on by itself.
    page.get_by_role("link", name="Review").click()
    page.get_by_role("button", name="They are one person…").wait_for()
    assert "cursor=" in page.url
    assert axe_violations(page) == []
    page.keyboard.press("j")
    page.keyboard.press("k")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("sel=0"))
    page.get_by_role("button", name="It is nobody's…").click()
    page.locator("#effect").get_by_label("Reason").fill("a family's address")
    assert axe_violations(page) == []
    page.get_by_role("button", name=re.compile("^Unlink, ")).click()
    page.get_by_text("Decided", exact=True).wait_for()
    whole.jobs.suggested = [("user_id:7101", "user_id:7102")]
    page.goto("/ui/review/suggestions")
    page.get_by_label("Attributes to compare").fill("demographics.age activity.platform")
    assert axe_violations(page) == []
    page.get_by_role("button", name="Find suggestions").click()
    page.get_by_role("button", name="One person…").wait_for()
    assert axe_violations(page) == []
    page.get_by_role("button", name="One person…").click()
    page.get_by_role("button", name="Link, 1 pin").wait_for()


@pytest.fixture
def officer(browser: Browser, whole: Whole) -> Iterator[Page]:
    """The page of a privacy officer who may reveal."""
    database = whole.site.app.state.service.database
    token = create_token(database, "officer", Role.PRIVACY, None, 100, may_reveal=True)
    with signed_in(browser, whole.site, token, viewport={"width": 1440, "height": 900}) as found:
        yield found


def test_one_value_is_revealed_and_a_request_is_answered(officer: Page) -> None:
    officer.goto("/ui/profiles/user_id:3474")
    leaf = officer.locator(".leaves li", has_text="email is sealed").first
    leaf.click()
    leaf.get_by_role("link", name="Reveal…").click()
    leaf.get_by_label("Purpose").select_option("Support")
    leaf.get_by_label("Case").fill("ticket 4711")
    assert axe_violations(officer) == []
    leaf.get_by_role("button", name="Reveal for").click()
    leaf.get_by_text("victoria@example.com").wait_for()
    leaf.get_by_text("s left").wait_for()
    assert axe_violations(officer) == []
    officer.evaluate("dispatchEvent(new Event('pagehide'))")
    leaf.get_by_text("Sealed again").wait_for()
    assert "victoria@" not in officer.content()
    officer.goto("/ui/audit")
    officer.get_by_role("link", name="Profiles").last.click()
    officer.get_by_label("An identifier of the person").fill("anonymous_id:609db510")
    officer.get_by_role("button", name="Acts on this person").click()
    officer.get_by_text("Support: ticket 4711").wait_for()
    assert axe_violations(officer) == []
    officer.goto("/ui/profiles/user_id:3474")
    officer.get_by_role("link", name="Rights of the person…").click()
    officer.get_by_role("button", name="Erase for good").wait_for()
    assert axe_violations(officer) == []
    officer.locator("#why-access").fill("a letter")
    officer.get_by_role("button", name="Collect everything").click()
    officer.get_by_role("link", name="Download the document").wait_for()
    assert axe_violations(officer) == []


def test_identity_rules_are_previewed_and_published(browser: Browser, whole: Whole) -> None:
    database = whole.site.app.state.service.database
    token = create_token(database, "rules publisher", Role.PUBLISHER, None, 100)
    with signed_in(browser, whole.site, token, viewport={"width": 1440, "height": 900}) as page:
        page.get_by_role("link", name="Identity Rules").click()
        page.get_by_label("Rules as JSON").fill('{"namespaces": {"email": {"max": 1}}, "limits": 1}')
        page.get_by_role("button", name="Check").click()
        page.get_by_text("/limits").wait_for()
        page.get_by_label("Rules as JSON").fill('{"namespaces": {"user_id": {"unique": true}}}')
        page.get_by_role("button", name="Preview effect").click()
        page.get_by_text("Effects of the draft").wait_for()
        assert axe_violations(page) == []
        page.get_by_label("Reason").fill("one number per customer")
        page.get_by_role("button", name="Publish version").click()
        page.get_by_text("Published version").wait_for()
        assert axe_violations(page) == []
