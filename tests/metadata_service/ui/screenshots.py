"""The pages as pictures: `python -m tests.metadata_service.ui.screenshots docs/pages` takes all of them, light, dark and narrow,
or with further arguments those that are named, for instance `attribute` or `profile-dark`."""

from __future__ import annotations

import base64
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idgraph.model.attributes import AttributeDefinition
from idgraph.model.callers import Scope
from idgraph.model.spec_use import SpecUse
from metadata_service.storage.tokens import Role
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.ui.chromium import chromium, signed_in
from tests.metadata_service.ui.site import EVENT, Site, Whole, whole_site
from tests.metadata_service.ui.test_deciding import ANN, BEN, RULES, seen
from tests.metadata_service.ui.test_definitions import HELLO, LAST, ORDER, ORDERS, SEGMENT, VIEW, crossed
from tests.metadata_service.ui.test_flows import report_of
from tests.metadata_service.ui.test_governing import asked
from tests.metadata_service.ui.test_sandboxes import edit
from tests.metadata_service.ui.test_spec_effect import PLACE, draft, working_site
from tests.metadata_service.ui.test_timeline import BUYER, acted
from tests.retail import order
from tests.transforms.behaviour.onnx_models import linear

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PERSON = "/ui/profiles/user_id:3474"
SHOWN = {
    "sign-in": "/ui/sign-in",
    "overview": "/ui/",
    "attributes": "/ui/attributes?sort=-classification",
    "attribute": "/ui/attributes/identity.email",
    "attribute-merged": "/ui/attributes/activity.platform",
    "schema": "/ui/schema",
    "views": "/ui/views",
    "view": "/ui/views/card",
    "segments": "/ui/segments",
    "segment": "/ui/segments/buyers",
    "activities": "/ui/activities",
    "derived-attributes": "/ui/derived-attributes",
    "derived-attribute": "/ui/derived-attributes/orders30d",
    "models": "/ui/models",
    "triggers": "/ui/triggers",
    "trigger": "/ui/triggers/hello",
    "ledger": "/ui/triggers/hello/ledger",
    "specs": "/ui/specs",
    "spec": "/ui/specs/shop-segment",
    "spec-editor": "/ui/specs/shop-segment/edit",
    "spec-case": "/ui/specs/shop-segment/edit",
    "new-spec": "/ui/specs-new?source=clinic",
    "generate": "/ui/generate",
    "profiles": "/ui/profiles?q=activity.platform=web",
    "profile": PERSON,
    "profile-json": f"{PERSON}?tab=json",
    "timeline": f"{BUYER}/timeline",
    "derived-value": BUYER,
    "explain": f"{PERSON}/explain?with=anonymous_id:609db510",
    "decide": f"/ui/links/new?one={ANN}&other={BEN}&decision=always",
    "reveal": f"{PERSON}/reveal?path=identity.email",
    "rights": f"{PERSON}/rights",
    "person-job": f"{PERSON}/rights",
    "review": "/ui/review/violations",
    "suggestions": "/ui/review/suggestions",
    "rules": "/ui/rules?from=0",
    "flows": "/ui/flows",
    "flow": "/ui/flows/shop",
    "sample": "/ui/flows/shop/sources/segment",
    "dead-letters": "/ui/dead-letters",
    "dead-letter": "/ui/dead-letters?reason=transform_failed",
    "replay": "/ui/dead-letters/replay?reason=transform_failed",
    "jobs": "/ui/jobs",
    "job": "/ui/jobs",
    "new-job": "/ui/jobs/new",
    "policy-changes": "/ui/policy-changes",
    "policy-change": "/ui/policy-changes",
    "requests": "/ui/requests?path=identity.email",
    "users": "/ui/users",
    "keys": "/ui/keys",
    "sandboxes": "/ui/sandboxes?sel=try",
    "audit": "/ui/audit",
    "profile-audit": "/ui/audit/profiles",
    "not-found": "/ui/nothing-here",
}
EFFECT = "spec-effect"
LOOKS: dict[str, dict[str, Any]] = {
    "": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "-dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "-narrow": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}
QUALITY = 85


def main(folder: Path, wanted: Sequence[str]) -> None:
    """Write one picture for each page and look."""
    folder.mkdir(parents=True, exist_ok=True)
    names = [f"{name}{suffix}" for suffix in LOOKS for name in (*SHOWN, EFFECT)]
    wanted = [each for each in names if not wanted or each in wanted]
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (work / "whole").mkdir()
        (work / "effect").mkdir()
        browser = stack.enter_context(chromium())
        if any(not each.startswith(EFFECT) for each in wanted):
            whole = stack.enter_context(whole_site(work / "whole"))
            _take_whole(browser, whole, furnished(whole), folder, wanted)
        if any(each.startswith(EFFECT) for each in wanted):
            _take_effect(browser, stack.enter_context(working_site(work / "effect")), folder, wanted)


def furnished(whole: Whole) -> str:
    """Give the pages something to show; returns the token of somebody who may see all of them."""
    api, database = whole.site.api(), whole.site.app.state.service.database
    uses = [
        SpecUse(spec=None, source=source, errors=events, last_used=round(time.time() * 1000))
        for source, events in (("clinic", 41_200), ("loyalty", 350))
    ]
    whole.client.send_uses(uses)
    stated = api.get("/v1/attributes/identity.email").json()
    owned = {"owner": "Customer care", "tags": ["contact", "newsletter"]}
    body = {each: stated[each] for each in AttributeDefinition.model_fields if each in stated} | owned
    api.put("/v1/attributes/identity.email", json=body).raise_for_status()
    api.put("/v1/identity-rules?reason=An+address+is+one+customer%27s", json=RULES).raise_for_status()
    for plural, document in (
        *(("views", VIEW), ("segments", SEGMENT), ("activities", ORDER)),
        *(("derived-attributes", LAST), ("derived-attributes", ORDERS), ("triggers", HELLO)),
    ):
        named = f"/v1/{plural}/{document['name']}?reason=For+support"
        api.put(named, json=document).raise_for_status()
    binary = {"Content-Type": "application/octet-stream"}
    model = linear([0.5, 0.001])
    api.post("/v1/models?name=churn&reason=First", content=model, headers=binary).raise_for_status()
    crossed(whole, "hello")
    acted(whole)
    asked(whole.site, "support.note", "Agents search it")
    wish = {"name": "try", "reason": "Count purchases"}
    api.post("/v1/sandboxes", json=wish).raise_for_status()
    edit(whole.site.app, "try", "orders.count")
    for number, person in enumerate((ANN, BEN), 1):
        seen(whole, number, person)
    whole.jobs.suggested = [(ANN, BEN), ("user_id:3474", ANN)]
    given = [order(1, 22801, created_at="soon"), *(order(n, 22700 + n, order_id=None) for n in range(31))]
    whole.letters.put(whole.pipeline.map(*given).dead_letters)
    report_of(whole, age=2.0)
    return create_token(database, "dana", Role.ADMIN, None, 50, True, tuple(Scope))


def _take_whole(browser: Browser, whole: Whole, token: str, folder: Path, wanted: Sequence[str]) -> None:
    for suffix, options in LOOKS.items():
        with signed_in(browser, whole.site, token, **options) as page:
            for name, path in SHOWN.items():
                if f"{name}{suffix}" in wanted:
                    report_of(whole, age=2.0)
                    page.goto(path)
                    _go_on(page, whole, name)
                    _take(page, folder / f"{name}{suffix}.webp")


def _go_on(page: Page, whole: Whole, name: str) -> None:
    """From the address of a page to what its picture shows."""
    match name:
        case "spec-editor" | "spec-case":
            page.get_by_label("Sample event").fill(json.dumps(EVENT, indent=2))
            page.get_by_text("Not read").wait_for()
            if name == "spec-case":
                page.get_by_role("button", name="Make a test case").click()
                page.get_by_text("It passes").wait_for()
        case "attribute-merged":
            page.get_by_text("Filled").wait_for()
            page.get_by_label("Path of the other attribute").fill("device.platform")
            page.get_by_label("Path of the other attribute").scroll_into_view_if_needed()
        case "generate":
            page.get_by_label("Name of the spec").fill("shop-segment-2")
            page.get_by_label("Source").fill("segment")
            page.get_by_label("Events").fill(json.dumps(EVENT))
            page.get_by_role("button", name="Generate", exact=True).click()
            page.locator("#draft").wait_for()
        case "dead-letter":
            page.get_by_role("link", name="#22801").click()
            page.locator(".record").wait_for()
        case "policy-change":
            page.locator("main a[href^='/ui/policy-changes/']").first.click()
        case "person-job":
            page.locator("form[action$='/access-requests'] [name=reason]").fill("Letter of 3 May")
            page.locator("form[action$='/access-requests'] button").last.click()
            page.get_by_text("Download the document").wait_for()
        case "suggestions":
            page.locator("[name=attributes]").fill("demographics.age, activity.platform")
            page.locator("main form[action$='/suggestions'] button").last.click()
            page.get_by_text("weight").first.wait_for()
        case "job":
            if not whole.jobs.records():
                page.goto("/ui/jobs/new")
                page.locator("form:has([value=reindex]) [name=reason]").first.fill("After a restore")
                page.locator("form:has([value=reindex]) button").last.click()
                whole.jobs.step(80)
            page.goto(f"/ui/jobs/{whole.jobs.records()[0].id}")


def _take_effect(browser: Browser, site: Site, folder: Path, wanted: Sequence[str]) -> None:
    body = json.loads(draft(site, **{"orders.count": "cart.items"})) | {"status": "draft"}
    etag = site.api().get("/v1/specs/shop-orders").headers["etag"]
    site.api().put(
        "/v1/specs/shop-orders?reason=Count+orders", json=body, headers={"If-Match": etag}
    ).raise_for_status()
    for suffix, options in LOOKS.items():
        if f"{EFFECT}{suffix}" in wanted:
            with signed_in(browser, site, **options) as page:
                page.goto(f"{PLACE}?version=2")
                page.get_by_role("button", name="Run the preview").click()
                page.get_by_text("events changed").first.wait_for()
                _take(page, folder / f"{EFFECT}{suffix}.webp")


def _take(page: Page, file: Path) -> None:
    # A page that asks again is never idle.
    page.wait_for_load_state("load" if file.name.startswith("flow") else "networkidle")
    session = page.context.new_cdp_session(page)
    taken = session.send("Page.captureScreenshot", {"format": "webp", "quality": QUALITY})
    file.write_bytes(base64.b64decode(taken["data"]))
    session.detach()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
