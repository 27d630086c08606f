"""The timeline on a person's page: what her events left, and what is derived from it, as its reader may see them."""

from __future__ import annotations

import html
import json
import re
from typing import Any

import pytest

from idgraph.model.callers import Scope
from metadata_service.storage.tokens import Role
from tests.metadata_service.ui.site import EVENT, Whole
from tests.metadata_service.ui.test_profiles import reader
from tests.retail import raw
from tests.support.patience import eventually

pytestmark = pytest.mark.slow

BUYER = "/ui/profiles/user_id:9047"
SEEN: dict[str, Any] = {
    "name": "seen",
    "source": "segment",
    "since": None,
    "fields": {
        "what": "activity.lastEvent",
        "total": "activity.purchase.total",
        "cart": "activity.purchase.cartId",
    },
}
DERIVED: list[dict[str, Any]] = [
    {"name": "seenTimes", "path": "behaviour.seenTimes", "window": {"activity": "seen"}},
    {"name": "visits", "path": "behaviour.visits", "sessions": {"activity": "seen", "over": "all"}},
    {
        "name": "bought",
        "path": "behaviour.bought",
        "pattern": {
            "activities": ["seen"],
            "pattern": "V B",
            "define": {"V": "what == 'View'", "B": "what == 'Purchase'"},
        },
    },
]


def event(number: int, minute: int, name: str, **properties: Any) -> dict[str, Any]:
    return {
        "messageId": f"seen-{number}",
        "timestamp": f"2024-03-15T10:{minute:02}:00Z",
        "userId": "9047",
        "anonymousId": "of-9047",
        "type": "track",
        "event": name,
        "platform": "web",
        "traits": {},
        "properties": properties,
    }


EVENTS = [
    event(1, 0, "View", productId="p"),
    event(2, 4, "Purchase", cartId="c-9047", cartTotal=4711.25),
    event(3, 50, "View", productId="q"),
]


@pytest.fixture(scope="module")
def buyer(whole: Whole) -> Whole:
    """A person with three entries in two sessions, and a match."""
    acted(whole)
    return whole


def acted(whole: Whole) -> None:
    """Let the person act, and wait until she shows it."""
    api = whole.site.api()
    if api.get("/v1/activities/seen").is_success:
        return
    api.put("/v1/activities/seen", json=SEEN).raise_for_status()
    for each in DERIVED:
        api.put(f"/v1/derived-attributes/{each['name']}", json=each).raise_for_status()
    whole.process([raw(each, source="segment") for each in EVENTS])
    person = reader(whole, "who waits", 50)
    eventually(lambda: "behaviour" in person.client.get(BUYER).text)


def rows(page: str) -> list[str]:
    return re.findall(r"\d{4}-\d\d-\d\dT[0-9:.]+Z(?=</code></th>)", page)


def test_entries_stand_newest_first_with_their_fields(buyer: Whole) -> None:
    person = buyer.site.signed_in(Role.ADMIN)
    assert f'href="{BUYER}/timeline"'.replace(":", "%3A") in person.get(BUYER)
    page = person.get(f"{BUYER}/timeline")
    assert rows(page) == ["2024-03-15T10:50:00Z", "2024-03-15T10:04:00Z", "2024-03-15T10:00:00Z"]
    for text in ("4711.25", "seen-2", "shop-segment@", "&#34;Purchase&#34;"):
        assert text in page
    assert "seen: 3 entries" in page
    assert "visits: 2 sessions" in page
    assert "bought: 1 match" in page
    assert page.count('<rect class="session"') == 2
    twin = page.partition("Sessions and matches as a table")[2].partition("</table>")[0]
    shown = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in twin.split("<tr>")[2:]]
    assert [[re.sub("<[^>]+>", "", cell) for cell in row] for row in shown] == [
        ["session", "2024-03-15T10:50:00Z", "2024-03-15T10:50:00Z", "1"],
        ["session", "2024-03-15T10:00:00Z", "2024-03-15T10:04:00Z", "2"],
        ["match", "2024-03-15T10:00:00Z", "2024-03-15T10:04:00Z", "2"],
    ]
    assert "/v1/profiles/user_id:9047/timeline" in html.unescape(page)


def test_the_timeline_is_narrowed_by_activity_and_days(buyer: Whole) -> None:
    person = buyer.site.signed_in(Role.ADMIN)
    assert len(rows(person.get(f"{BUYER}/timeline?activity=seen&since=2024-03-15&until=2024-03-15"))) == 3
    assert "No entry in this selection" in person.get(f"{BUYER}/timeline?since=2024-03-16&until=")
    assert "there is no activity never" in person.get(f"{BUYER}/timeline?activity=never", 422)
    person.get(f"{BUYER}/timeline?since=soon", 422)
    assert "No profile has" in person.get("/ui/profiles/user_id:none/timeline", 404)


def test_a_timeline_of_one_moment_has_a_picture(buyer: Whole) -> None:
    once = EVENT | {"messageId": "once", "userId": "9049", "anonymousId": "of-9049"}
    buyer.process([raw(once, source="segment")])
    page = buyer.site.signed_in(Role.ADMIN).get("/ui/profiles/user_id:9049/timeline")
    assert "seen: 1 entry" in page
    assert "visits: 1 session" in page


def test_a_derived_value_says_its_definition_and_entries(buyer: Whole) -> None:
    page = buyer.site.signed_in(Role.ADMIN).get(BUYER)
    value = page.partition('data-text="behaviour.seenTimes"')[2].partition("</li>")[0]
    assert "/ui/derived-attributes/seenTimes?version=1" in value
    assert "rests on 3 entries" in re.sub(r"\s+", " ", value)
    assert ">complete<" in value


def test_matches_above_the_clearance_are_not_in_the_picture(buyer: Whole) -> None:
    low, api = reader(buyer, "low and curious", 0), buyer.site.api()
    assert "bought: 1 match" in low.get(f"{BUYER}/timeline?activity=seen")
    place = "/v1/attributes/behaviour.bought.last.begin"
    known = api.get(place)
    stated = {"path": "behaviour.bought.last.begin", "data_type": "integer", "authorization_level": 90}
    api.put(place, json=stated, headers={"If-Match": known.headers["etag"]}).raise_for_status()
    eventually(lambda: "bought" not in low.get(f"{BUYER}/timeline"))
    assert "visits: 2 sessions" in low.get(f"{BUYER}/timeline")


def test_a_reader_of_profiles_alone_has_the_timeline_without_fields_above_the_clearance(buyer: Whole) -> None:
    low = reader(buyer, "low clearance", 0)
    assert "c-9047" in low.get(f"{BUYER}/timeline")
    stated = {"path": SEEN["fields"]["cart"], "data_type": "string", "authorization_level": 90}
    api = buyer.site.api()
    etag = api.get(f"/v1/attributes/{stated['path']}").headers["etag"]
    saved = api.put(f"/v1/attributes/{stated['path']}", json=stated, headers={"If-Match": etag})
    saved.raise_for_status()
    eventually(lambda: "c-9047" not in low.get(f"{BUYER}/timeline"))
    page = low.get(f"{BUYER}/timeline")
    assert len(rows(page)) == 3
    assert "visits" not in page, "made of entries with a field above the clearance"


def test_a_draft_of_a_derived_attribute_is_tried_on_stored_persons(buyer: Whole) -> None:
    person = reader(buyer, "who previews", 100, Scope.RULES, role=Role.ADMIN)
    place, draft = "/ui/derived-attributes/seenTimes", DERIVED[0]
    shown = _tried(person.post(place, {"act": "try", "text": json.dumps(draft)}))
    assert re.search(r"<b>0</b> of [1-9][0-9]* persons change", shown)
    bought = draft | {"window": {"activity": "seen", "condition": "what == 'Purchase'"}}
    shown = _tried(person.post(place, {"act": "try", "text": json.dumps(bought)}))
    assert re.search(r"<b>1</b> of [1-9][0-9]* persons changes: 0 get a value, 0 lose theirs", shown)
    example = shown.partition("user_id:9047</code>")[2].partition("</tr>")[0]
    assert re.findall(r'number">(\d+)<', example) == ["3", "1"]
    retired = _tried(person.post(place, {"act": "try", "text": json.dumps(draft | {"status": "retired"})}))
    assert "lose theirs" in retired
    low = _tried(buyer.site.signed_in(Role.ADMIN).post(place, {"act": "try", "text": json.dumps(draft)}))
    assert "clearance 100" in low


def _tried(page: str) -> str:
    return page.partition('id="tried"')[2].partition("</section>")[0]


def test_an_event_cannot_write_markup(buyer: Whole) -> None:
    script = '<script>alert(1)</script>"onload=alert(1)'
    buyer.process(
        [
            raw(
                EVENT | {"messageId": script, "event": script, "userId": "9048", "anonymousId": "of-9048"},
                source="segment",
            )
        ]
    )
    page = buyer.site.signed_in(Role.ADMIN).get("/ui/profiles/user_id:9048/timeline")
    assert "alert(1)" in page
    assert "<script>alert" not in page
    assert '"onload' not in page
