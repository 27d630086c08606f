"""The main task of the page of sandboxes, in a real browser."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.metadata_service.ui.chromium import axe_violations, signed_in
from tests.metadata_service.ui.site import Site
from tests.metadata_service.ui.test_browser import browser
from tests.metadata_service.ui.test_sandboxes import PAGE, edit

if TYPE_CHECKING:
    from playwright.sync_api import Browser

__all__ = ["browser"]
pytestmark = pytest.mark.process


def test_an_edit_is_promoted_from_a_sandbox_and_the_sandbox_deleted(browser: Browser, site: Site) -> None:
    with signed_in(browser, site, viewport={"width": 1280, "height": 800}) as page:
        page.get_by_role("link", name="Sandboxes").click()
        page.get_by_label("Name lower-case").fill("try")
        page.get_by_label("Reason", exact=True).fill("count purchases")
        page.get_by_role("button", name="Make sandbox").click()
        page.get_by_text("try is made").wait_for()
        edit(site.app, "try", "tried.in.a.browser")
        page.goto(f"{PAGE}?sel=try")
        page.get_by_text("No profiles yet").wait_for()
        page.get_by_text("Difference to production").click()
        assert axe_violations(page) == []
        page.set_viewport_size({"width": 320, "height": 700})
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        assert page.get_by_role("checkbox", name="attribute tried.in.a.browser").is_checked()
        page.get_by_label("Reason of the promotion").fill("it counts")
        page.get_by_role("button", name="Promote the chosen documents").click()
        page.get_by_text("published").wait_for()
        assert axe_violations(page) == []
        page.get_by_label("Type its name").fill("try")
        page.get_by_role("button", name="Delete").click()
        page.get_by_text("No sandbox yet").wait_for()
