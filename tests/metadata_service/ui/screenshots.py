"""The pages as pictures: `python -m tests.metadata_service.ui.screenshots FOLDER`, of all of them, or with the names of
those that are wanted; `docs/pages` has the ones that docs/pages.md shows."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from idgraph.model.attributes import AttributeDefinition
from idgraph.model.spec_use import SpecUse
from tests.metadata_service.ui.chromium import chromium, signed_in
from tests.metadata_service.ui.site import EVENT, whole_site
from tests.metadata_service.ui.test_flows import report_of
from tests.retail import order

SHOWN = {
    "overview": "/ui/",
    "jobs": "/ui/jobs",
    "audit": "/ui/audit",
    "attributes": "/ui/attributes?sort=-classification",
    "attribute": "/ui/attributes/identity.email",
    "specs": "/ui/specs",
    "spec": "/ui/specs/shop-segment",
    "spec-editor": "/ui/specs/shop-segment/edit",
    "attribute-merged": "/ui/attributes/activity.platform",
    "spec-case": "/ui/specs/shop-segment/edit",
    "generate": "/ui/generate",
    "new-spec": "/ui/specs-new?source=clinic",
    "profiles": "/ui/profiles?q=activity.platform=web",
    "profile": "/ui/profiles/user_id:3474",
    "review": "/ui/review/violations",
    "rules": "/ui/rules?from=0",
    "explain": "/ui/profiles/user_id:3474/explain?with=anonymous_id:609db510",
    "flow": "/ui/flows/shop",
    "sample": "/ui/flows/shop/sources/segment",
    "dead-letters": "/ui/dead-letters",
    "dead-letter": "/ui/dead-letters?reason=transform_failed",
    "users": "/ui/users",
    "keys": "/ui/keys",
    "requests": "/ui/requests?path=identity.email",
    "sandboxes": "/ui/sandboxes",
    "sign-in": "/ui/sign-in",
}
LOOKS: dict[str, dict[str, Any]] = {
    "": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "light"},
    "-dark": {"viewport": {"width": 1280, "height": 800}, "color_scheme": "dark"},
    "-narrow": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
}


def main(folder: Path, wanted: Sequence[str]) -> None:
    """Write one picture for each page and look."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as work, whole_site(Path(work)) as whole, chromium() as browser:
        given = [order(1, 22801, created_at="soon"), *(order(n, 22700 + n, order_id=None) for n in range(31))]
        uses = [
            SpecUse(spec=None, source=source, errors=events, last_used=round(time.time() * 1000))
            for source, events in (("clinic", 41_200), ("loyalty", 350))
        ]
        whole.client.send_uses(uses)
        stated = whole.site.api().get("/v1/attributes/identity.email").json()
        fields = set(AttributeDefinition.model_fields)
        owned = {"owner": "Customer care", "tags": ["contact", "newsletter"]}
        body = {each: stated[each] for each in fields} | owned
        whole.site.api().put("/v1/attributes/identity.email", json=body).raise_for_status()
        whole.letters.put(whole.pipeline.map(*given).dead_letters)
        for suffix, options in LOOKS.items():
            with signed_in(browser, whole.site, **options) as page:
                for name, path in SHOWN.items():
                    if wanted and f"{name}{suffix}" not in wanted:
                        continue
                    report_of(whole, age=2.0)
                    page.goto(path)
                    if name in ("spec-editor", "spec-case"):
                        page.get_by_label("Sample event").fill(json.dumps(EVENT, indent=2))
                        page.get_by_text("Not read").wait_for()
                    if name == "attribute-merged":
                        page.get_by_text("Filled").wait_for()
                        page.get_by_label("Path of the other attribute").fill("device.platform")
                        page.get_by_label("Path of the other attribute").scroll_into_view_if_needed()
                    if name == "spec-case":
                        page.get_by_role("button", name="Make a test case").click()
                        page.get_by_text("It passes").wait_for()
                    if name == "generate":
                        page.get_by_label("Name of the spec").fill("shop-segment-2")
                        page.get_by_label("Source").fill("segment")
                        page.get_by_label("Events").fill(json.dumps(EVENT))
                        page.get_by_role("button", name="Generate", exact=True).click()
                        page.locator("#draft").wait_for()
                    if name == "dead-letter":
                        page.get_by_role("link", name="#22801").click()
                        page.locator(".record").wait_for()
                    # A page that asks again is never idle.
                    page.wait_for_load_state("load" if name == "flow" else "networkidle")
                    page.screenshot(path=folder / f"{name}{suffix}.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
