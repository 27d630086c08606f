"""The system's Chromium without a window, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idgraph.model.errors import ServerUnavailableError
from metadata_service.storage.tokens import Role
from tests.metadata_service.ui.site import Site

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = Path(__file__).with_name("axe.min.js")
MILLISECONDS = 60_000


@contextmanager
def chromium() -> Iterator[Browser]:
    """Raises ServerUnavailableError where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        raise ServerUnavailableError(
            "there is no Chromium; on Debian and Ubuntu: apt-get install -y chromium"
        )
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=["--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
        )
        try:
            yield browser
        finally:
            browser.close()


@contextmanager
def signed_in(browser: Browser, site: Site, token: str | None = None, **options: Any) -> Iterator[Page]:
    """A page of somebody who signed in by a link, as an admin who also reads profiles. What the browser complains about
    fails the test."""
    code = site.app.state.pages.state.sessions.make_link_code(token or site.tokens[Role.ADMIN])
    context = browser.new_context(base_url=site.url, reduced_motion="reduce", **options)
    context.set_default_timeout(MILLISECONDS)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    try:
        page.goto(f"/ui/sign-in?code={code}")
        page.get_by_role("button", name="Sign in by this link").click()
        page.wait_for_url("**/ui/")
        page.goto("/ui/attributes")
        yield page
        # Whoever leaves a page while it asks for its list again breaks that off.
        aborts = ("htmx:sendAbort", "htmx:afterRequest")
        assert [
            each for each in complaints if "status of 4" not in each and not each.startswith(aborts)
        ] == []
    finally:
        context.close()


def axe_violations(page: Page) -> list[str]:
    """What axe-core finds serious or critical."""
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
        for node in each["nodes"]
    ]
