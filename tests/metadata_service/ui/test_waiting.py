"""The numbers beside the pages: what waits for the person who looks, and nobody else's."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

import pytest

from metadata_service.storage.tokens import Role
from tests.metadata_service.ui.site import Person, Whole
from tests.metadata_service.ui.test_profiles import away, reader
from tests.retail import order

pytestmark = pytest.mark.slow


def numbers(person: Person) -> dict[str, str]:
    return dict(re.findall(r'id="waits-([a-z]+)" hx-swap-oob="true">([\d,+]+)<', person.get("/ui/waiting")))


def test_what_waits_is_counted_for_those_who_decide(whole: Whole) -> None:
    given = [order(1, 22801, created_at="soon"), order(2, 22802, created_at="soon")]
    whole.letters.put(whole.pipeline.map(*given).dead_letters)
    admin = whole.site.signed_in()
    found = numbers(admin)
    assert found["letters"] == "2"
    assert int(found["search"]) > 0
    assert numbers(reader(whole, "counting nothing", 50)) == {}
    assert "letters" not in numbers(whole.site.signed_in(Role.VIEWER))


def test_all_that_waits_on_one_page_is_one_number(whole: Whole) -> None:
    admin, viewer = whole.site.api(), whole.site.api(Role.VIEWER)
    soon = (datetime.now(UTC) + timedelta(days=3)).isoformat()
    for path in ("secret.first", "secret.second"):
        attribute = {"path": path, "data_type": "string", "authorization_level": 20}
        admin.put(f"/v1/attributes/{path}", json=attribute).raise_for_status()
        asked = viewer.post("/v1/requests", json={"path": path, "purpose": "support", "until": soon})
        given = {"action": "granted", "reason": "enough"}
        admin.post(f"/v1/requests/{asked.json()['id']}/answer", json=given).raise_for_status()
    assert numbers(whole.site.signed_in(Role.VIEWER))["ask"] == "2"


def test_without_the_profile_service_the_catalogue_still_has_its_numbers(whole: Whole) -> None:
    admin = whole.site.signed_in()
    with away(whole):
        assert "search" in numbers(admin)


def test_the_palette_offers_what_a_person_may_open(whole: Whole) -> None:
    admin, low = whole.site.signed_in(), reader(whole, "finding", 0)
    assert "/ui/attributes/activity.platform" in admin.post("/ui/palette", {"q": "platform"})
    assert "/ui/specs/shop-segment" in admin.post("/ui/palette", {"q": "shop-seg"})
    assert "/ui/profiles/user_id:3474" in admin.post("/ui/palette", {"q": "3474"})
    assert "/ui/users" in admin.post("/ui/palette", {"q": "user"})
    found = low.post("/ui/palette", {"q": "<b>"})
    assert "&lt;b&gt;" in found
    assert "data-href" not in found
    assert admin.client.post("/ui/palette", data={"q": "x"}).status_code == 403
