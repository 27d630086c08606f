"""The system's Chromium without a window, driven by Playwright."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from metadata_service.storage.tokens import Role
from tests.metadata_service.ui.site import Site
from tests.support.processes import ServerUnavailableError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

AXE = Path(__file__).with_name("axe.min.js")
MILLISECONDS = 60_000
_SEVERE = """() => axe.run(document, {
    resultTypes: ["violations"],
    rules: Object.fromEntries(axe._audit.rules
        .filter((rule) => !SEVERE.includes(rule.impact) && rule.id !== "landmark-unique")
        .map((rule) => [rule.id, {enabled: false}])),
}).then((found) => found.violations.filter((each) => SEVERE.includes(each.impact) || each.id === "landmark-unique"))""".replace(
    "SEVERE", '["serious", "critical"]'
)
"""Two landmarks of one name lead somebody who jumps between them astray."""
_TORN = """() => [...document.querySelectorAll("table.rows")].flatMap((table) => {
    const heads = [...table.querySelectorAll("thead th")];
    const isShown = (each) => each.getClientRects().length > 0;
    // On a narrow screen the heads are for screen readers alone.
    if (!heads.length || getComputedStyle(table.tHead).position === "absolute") return [];
    return [...table.querySelectorAll("tbody tr")].flatMap((row) => [...row.children].filter(
        (cell, place) => heads.length === row.children.length && isShown(heads[place]) !== isShown(cell)
    ).map((cell) => `${table.caption?.textContent}: ${heads[row.children.length && [...row.children].indexOf(cell)].textContent}`));
})"""

_CUT = """() => [...document.querySelectorAll("main *")].filter((each) => {
    const box = each.getBoundingClientRect();
    if (!box.width || !box.height || box.right <= innerWidth + 1 || each.closest("svg, .unseen, thead, details:not([open])")) return false;
    for (let above = each; above; above = above.parentElement) {
        const style = getComputedStyle(above);
        if (style.textOverflow === "ellipsis" || (above !== each && /auto|scroll/.test(style.overflowX))) return false;
    }
    return true;
}).map((each) => `${each.tagName} ${each.className} ${each.textContent.trim().slice(0, 40)}`)"""

_IS_COMPLETE = """() => document.readyState === "complete"
    && !document.querySelector(".htmx-request, .htmx-swapping, .htmx-settling")
    && [...document.querySelectorAll("[hx-trigger*=load]")].every((each) => each["htmx-internal-data"]?.loaded)"""
"""What is asked for `load` may not be asked for yet: htmx marks an element for which it was."""


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
    """A page of somebody who signed in with a token, as an admin who also reads profiles. What the browser complains about
    fails the test."""
    context = browser.new_context(base_url=site.url, reduced_motion="reduce", **options)
    context.set_default_timeout(MILLISECONDS)
    page = context.new_page()
    complaints: list[str] = []
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
    try:
        given = token or site.tokens[Role.ADMIN]
        answer = context.request.post("/ui/sign-in", form={"token": given}, max_redirects=0)
        assert answer.status == 303, answer.text()
        page.goto("/ui/attributes")
        yield page
        # Whoever leaves a page while it asks for its list again breaks that off.
        aborts = ("htmx:sendAbort", "htmx:afterRequest")
        assert [
            each for each in complaints if "status of 4" not in each and not each.startswith(aborts)
        ] == []
    finally:
        context.close()


def torn_columns(page: Page) -> set[str]:
    """The columns of tables whose head is shown without its cells, or hidden with them shown."""
    page.wait_for_function(_IS_COMPLETE)
    return set(page.evaluate(_TORN))


def cut_off(page: Page) -> list[str]:
    """What stands beyond the right edge where nobody can scroll to, with all details open."""
    page.wait_for_function(_IS_COMPLETE)
    page.evaluate("document.querySelectorAll('main details').forEach((each) => { each.open = true; })")
    return list(page.evaluate(_CUT))


def axe_violations(page: Page) -> list[str]:
    """What axe-core finds serious or critical, and landmarks of one name, once the page has what it asks for by itself."""
    page.wait_for_function(_IS_COMPLETE)
    if not page.evaluate("'axe' in window"):
        page.evaluate(AXE.read_text(encoding="utf-8"))
    return [
        f"{each['id']}: {node['target']} {node['failureSummary']}"
        for each in page.evaluate(_SEVERE)
        for node in each["nodes"]
    ]
