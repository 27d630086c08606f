"""The main tasks of the pages about persons in a real browser, without a serious barrier."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.metadata_service.ui.chromium import axe_violations
from tests.metadata_service.ui.test_browser import browser, page

if TYPE_CHECKING:
    from playwright.sync_api import Page

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
