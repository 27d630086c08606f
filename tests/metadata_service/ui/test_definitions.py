"""Views, segments, activities, derived attributes and triggers: written, tried on the profiles that a person sees, published,
retired. And the ledger of a trigger."""

from __future__ import annotations

import html
import json
import re
import time
from html.parser import HTMLParser
from typing import Any

import pytest

from idgraph.model.triggers import LedgerLine
from metadata_service.storage.tokens import Role
from profile_service.trigger_ledger import TriggerLedger
from tests.metadata_service.ui.site import EVENT, Site, Whole
from tests.metadata_service.ui.test_pages import SCRIPT, editor_field
from tests.retail import raw
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


VIEW: dict[str, Any] = {
    "name": "card",
    "description": "For support.",
    "attributes": {"last": "activity.lastEvent"},
}
SEGMENT: dict[str, Any] = {"name": "buyers", "q": "activity.lastEvent=Purchase"}
ORDER: dict[str, Any] = {"name": "order", "source": "shop-*", "fields": {"total": "activity.cartTotal"}}
LAST: dict[str, Any] = {"name": "last", "path": "behaviour.last", "expression": "activity.lastEvent"}
ORDERS: dict[str, Any] = {
    "name": "orders30d",
    "path": "behaviour.orders30d",
    "window": {"activity": "order", "over": "30d"},
}
HELLO: dict[str, Any] = {"name": "hello", "when": {"q": "activity.lastEvent=Purchase"}, "webhook": "crm"}
KINDS = [
    ("views", VIEW),
    ("segments", SEGMENT),
    ("activities", ORDER),
    ("derived-attributes", LAST),
    ("triggers", HELLO),
]


def fields(page: str) -> dict[str, str]:
    return {"etag": editor_field(page, "etag"), "text": editor_field(page, "text")}


@pytest.mark.parametrize(("plural", "document"), KINDS)
def test_one_is_written_published_edited_and_retired(
    site: Site, plural: str, document: dict[str, Any]
) -> None:
    person, name = site.signed_in(), str(document["name"])
    place = f"/ui/{plural}/{name}"
    person.get(place, 404)
    begun = fields(person.get(f"/ui/{plural}-new?name={name}"))
    assert json.loads(begun["text"])["name"] == name
    draft = begun | {"text": json.dumps(document), "act": "publish"}
    assert "Give a reason" in person.post(place, draft, 422)
    assert "Published version 1" in person.post(place, draft | {"reason": "first"})
    assert site.api().get(f"/v1/{plural}/{name}").json()["version"] == 1

    mine, theirs = fields(person.get(place)), fields(person.get(place))
    edited = json.dumps(document | {"description": "Mine."})
    saved = person.post(place, theirs | {"text": edited, "act": "publish", "reason": "better"})
    assert "Published version 2" in saved
    other = json.dumps(document | {"description": "Other."})
    checked = fields(person.post(place, mine | {"text": other, "act": "check"}))
    assert checked["etag"] == mine["etag"]
    conflict = person.post(place, mine | {"text": other, "act": "publish", "reason": "late"}, 412)
    assert "Other." in editor_field(conflict, "text")
    assert "Mine." in conflict

    assert "Version 1" in person.get(f"{place}?version=1")
    retired = person.post(place, fields(person.get(place)) | {"act": "retire", "reason": "unused"})
    assert "Retired" in retired
    assert name in person.get(f"/ui/{plural}?q={name[:3]}&sort=-name")
    assert "Nothing matches" in person.get(f"/ui/{plural}?q=no-such-name")


@pytest.mark.parametrize(("plural", "document"), KINDS)
def test_two_drafts_of_one_new_name_are_no_lost_edit(
    site: Site, plural: str, document: dict[str, Any]
) -> None:
    """Found by review: the second one replaced the first one unseen."""
    person, name = site.signed_in(), "twice"
    document = document | {"name": name} | ({"path": "behaviour.twice"} if "path" in document else {})
    mine, theirs = (fields(person.get(f"/ui/{plural}-new?name={name}")) for _ in range(2))
    publish = {"act": "publish", "reason": "new"}
    person.post(f"/ui/{plural}/{name}", theirs | publish | {"text": json.dumps(document)})
    other = json.dumps(document | {"description": "Other."})
    conflict = person.post(f"/ui/{plural}/{name}", mine | publish | {"text": other}, 412)
    assert "Other." in editor_field(conflict, "text")
    again = fields(conflict) | publish | {"text": other}
    person.post(f"/ui/{plural}/{name}", again)
    stored = site.api().get(f"/v1/{plural}/{name}").json()
    assert (stored["version"], stored["description"]) == (2, "Other.")


@pytest.mark.parametrize(
    ("plural", "document", "pointer"),
    [
        ("views", VIEW | {"attributes": {"a": "b.["}}, "/attributes/a"),
        ("views", VIEW | {"name": "other"}, "/name"),
        ("views", VIEW | {"atributes": {}}, "/atributes"),
        ("segments", SEGMENT | {"q": "a=("}, "/q"),
        ("segments", SEGMENT | {"q": "identity.email=x"}, "/q"),
        ("activities", ORDER | {"fields": {"mail": "identity.email"}}, "/fields/mail"),
        ("activities", ORDER | {"keep": "a year"}, "/keep"),
        ("derived-attributes", LAST | {"expression": "a.["}, "/expression"),
        ("derived-attributes", LAST | {"path": "identity.email"}, "/path"),
        ("derived-attributes", ORDERS | {"name": "last"}, "/window/activity"),
        ("triggers", HELLO | {"when": {"segment": "none"}}, "/when/segment"),
        ("triggers", HELLO | {"when": {"q": "a=("}}, "/when/q"),
        ("triggers", HELLO | {"view": "none"}, "/view"),
    ],
)
def test_a_mistake_is_shown_at_its_place(
    site: Site, plural: str, document: dict[str, Any], pointer: str
) -> None:
    name = dict(KINDS)[plural]["name"]
    page = site.signed_in().post(f"/ui/{plural}/{name}", {"text": json.dumps(document), "act": "check"}, 422)
    assert pointer in html.unescape(page.partition('id="problems"')[2])


@pytest.mark.parametrize("plural", [each for each, _ in KINDS])
def test_what_is_no_json_is_still_there_to_be_mended(site: Site, plural: str) -> None:
    """Found by review: the text was lost."""
    page = site.signed_in().post(f"/ui/{plural}/broken", {"text": '{"name":', "act": "publish"}, 422)
    assert "not JSON" in page
    assert editor_field(page, "text") == '{"name":'


@pytest.mark.parametrize("made_of", ["window", "sessions", "pattern", "expression"])
def test_a_derived_attribute_begins_in_order(site: Site, made_of: str) -> None:
    site.api().put("/v1/activities/order", json=ORDER).raise_for_status()
    person = site.signed_in()
    begun = fields(person.get(f"/ui/derived-attributes-new?name=of-{made_of}&of={made_of}"))
    assert made_of in json.loads(begun["text"])
    assert "Published version 1" in person.post(
        f"/ui/derived-attributes/of-{made_of}", begun | {"act": "publish", "reason": "new"}
    )


def test_a_page_explains_the_fields_of_a_definition(site: Site) -> None:
    page = html.unescape(site.signed_in().get("/ui/derived-attributes/helped?new=true&written=json"))
    for text in (
        "window.over.calendar",
        "month, quarter",
        "top_k",
        "As <code>A B* C{2,3}? $</code>.",
        "sessions.gap",
    ):
        assert text in page
    assert '"400d"' in html.unescape(site.signed_in().get("/ui/activities/helped?new=true&written=json"))


def test_a_definition_is_written_in_fields(site: Site) -> None:
    site.api().put("/v1/activities/order", json=ORDER).raise_for_status()
    person, place = site.signed_in(), "/ui/derived-attributes/busy"
    page = person.get("/ui/derived-attributes-new?name=busy&of=window")
    for label in ("Path", "Activity", "Function", "Field", "Condition", "Over"):
        assert f">{label}" in page
    begun = fields(page) | {"written": "fields", "act": "check"}
    wrong = begun | {"/window/function": "sum", "/window/field": "totl", "/window/over": "a month"}
    page = person.post(place, wrong, 422)
    field = page.partition('id="/window/over"')[2].partition("</div>")[0]
    assert 'aria-invalid="true"' in field
    assert 'value="a month"' in field
    assert "as in 30d" in html.unescape(field)
    assert 'href="#/window/over"' in page
    page = person.post(place, fields(page) | wrong | {"/window/over": "30d"}, 422)
    assert "have no field totl" in page.partition('id="/window/field"')[2].partition("</div>")[0]
    whole = fields(page) | begun | {"/window/field": "total", "/window/condition": "total > `5`"}
    as_json = person.post(place, whole | {"act": "json"})
    assert json.loads(editor_field(as_json, "text"))["window"] == {
        "activity": "order",
        "function": "count",
        "field": "total",
        "over": "30d",
        "condition": "total > `5`",
    }
    assert "busy as JSON" not in person.post(place, fields(as_json) | {"act": "fields", "written": "json"})
    assert "Published version 1" in person.post(place, whole | {"act": "publish", "reason": "new"})
    assert site.api().get("/v1/derived-attributes/busy").json()["window"]["field"] == "total"


class _Sent(HTMLParser):
    """What a browser sends of the form `draft` by its button of a name."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self._open = ""
        self._option: str | None = None
        self.feed(page.partition('id="draft"')[2].partition("</form>")[0])

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        known = dict(attrs)
        name, value = known.get("name"), known.get("value") or ""
        if tag in ("select", "textarea"):
            self._open = name or ""
        elif tag == "option" and ("selected" in known or self._open not in self.fields):
            self.fields[self._open] = value
        elif tag == "input" and name:
            self.fields[name] = value

    def handle_data(self, data: str) -> None:
        if self.lasttag == "textarea" and self._open:
            self.fields[self._open] = data.removeprefix("\n")
            self._open = ""


@pytest.mark.parametrize(
    ("plural", "document"),
    [
        *KINDS,
        ("derived-attributes", ORDERS),
        ("derived-attributes", ORDERS | {"window": {"activity": "order", "over": {"calendar": "month"}}}),
        ("derived-attributes", LAST | {"expression": None, "sessions": {"activity": "order"}}),
        ("activities", ORDER | {"since": None}),
        ("triggers", HELLO | {"quiet": {"from": "22:00", "to": "08:00"}, "expires": None}),
        ("triggers", HELLO | {"limits": [{"most": 1, "per": "7d"}, {"most": 2, "calendar": "month"}]}),
    ],
)
def test_a_form_that_nobody_changed_is_the_same_document(
    site: Site, plural: str, document: dict[str, Any]
) -> None:
    """Found by hand: a list of choices without an empty one said its first."""
    site.api().put("/v1/activities/order", json=ORDER).raise_for_status()
    person, place = site.signed_in(), f"/ui/{plural}/{document['name']}"
    document = {
        name: value for name, value in document.items() if value is not None or name in ("expires", "since")
    }
    page = person.post(place, {"text": json.dumps(document), "act": "fields"})
    sent = _Sent(page).fields
    assert sent["written"] == "fields"
    assert json.loads(editor_field(person.post(place, sent | {"act": "json"}), "text")) == document


def test_an_activity_names_the_attributes_that_read_it(site: Site) -> None:
    for plural, document in (("activities", ORDER), ("derived-attributes", ORDERS)):
        site.api().put(f"/v1/{plural}/{document['name']}", json=document).raise_for_status()
    buyers = {"name": "buyers", "q": "behaviour.orders30d>0"}
    site.api().put("/v1/segments/buyers", json=buyers).raise_for_status()
    person = site.signed_in()
    assert "/ui/derived-attributes/orders30d" in person.get("/ui/activities/order")
    assert "/ui/segments/buyers" in person.get("/ui/derived-attributes/orders30d")
    listed = person.get("/ui/derived-attributes")
    assert "/ui/activities/order" in listed
    assert "behaviour.orders30d" in listed
    assert "/ui/derived-attributes/orders30d" in person.get("/ui/attributes/behaviour.orders30d")


def test_paths_that_no_attribute_has_are_warned_of(site: Site) -> None:
    view = {"name": "odd", "attributes": {"a": "activity.lastEvnt", "b": "activity", "c": "identity.email"}}
    warned = site.api().post("/v1/views/check", json=view).json()["warnings"]
    assert len(warned) == 1
    assert "activity.lastEvnt" in warned[0]
    page = site.signed_in().post("/ui/views/odd", {"text": json.dumps(view), "act": "check"})
    assert "activity.lastEvnt, or one above or below it" in page
    segment = {"name": "odd", "q": "activity.lastEvnt=x"}
    assert len(site.api().post("/v1/segments/check", json=segment).json()["warnings"]) == 1


def test_stored_script_is_text(site: Site) -> None:
    view = {"name": "scripted", "description": SCRIPT, "attributes": {"a": f"'{SCRIPT[:25]}'"}}
    site.api().put("/v1/views/scripted", params={"reason": SCRIPT}, json=view).raise_for_status()
    person = site.signed_in()
    for page in (person.get("/ui/views"), person.get("/ui/views/scripted")):
        assert "<script>" not in page
        assert '"onload' not in page


@pytest.mark.parametrize(
    ("role", "drafts", "publishes"),
    [(Role.READER, False, False), (Role.ANALYST, True, False), (Role.PUBLISHER, True, True)],
)
def test_who_may_draft_and_who_may_publish(site: Site, role: Role, drafts: bool, publishes: bool) -> None:
    view = {"name": "shared", "attributes": {"a": "activity"}}
    site.api().put("/v1/views/shared", json=view).raise_for_status()
    person = site.signed_in(role)
    page = person.get("/ui/views/shared")
    assert ('value="publish"' in page, 'value="check"' in page) == (publishes, drafts)
    text = {"text": json.dumps(view), "etag": editor_field(page, "etag") if drafts else "", "reason": "x"}
    person.post("/ui/views/shared", text | {"act": "check"}, 200 if drafts else 403)
    person.post("/ui/views/shared", text | {"act": "publish"}, 200 if publishes else 403)


def test_a_draft_is_tried_on_the_profiles_that_its_author_sees(whole: Whole) -> None:
    person = whole.site.signed_in()
    view = {"text": json.dumps(VIEW), "act": "try", "person": "user_id:3474"}
    assert "Purchase" in _tried(person.post("/ui/views/card", view))
    assert "no profile" in person.post("/ui/views/card", view | {"person": "user_id:none"})
    assert "no-such" not in _tried(person.post("/ui/views/card", view | {"person": "no-such"}))
    sealed = {"name": "card", "attributes": {"mail": "identity.email", "all": "identity"}}
    assert "ictoria" not in person.post("/ui/views/card", view | {"text": json.dumps(sealed)})
    shown = _tried(person.post("/ui/segments/buyers", {"text": json.dumps(SEGMENT), "act": "try"}))
    assert re.search(r"<b>[1-9]", shown)
    assert "/ui/profiles/" in shown


def test_a_trigger_begins_with_what_it_watches(site: Site) -> None:
    site.api().put("/v1/segments/buyers", json=SEGMENT).raise_for_status()
    person = site.signed_in()
    for made_of in ("segment", "search", "attribute"):
        begun = fields(person.get(f"/ui/triggers-new?name=of-{made_of}&of={made_of}"))
        publish = begun | {"act": "publish", "reason": "new"}
        assert "Published version 1" in person.post(f"/ui/triggers/of-{made_of}", publish)
    listed = person.get("/ui/triggers")
    assert "/ui/segments/buyers" in listed
    assert "activity.lastSeenAt&lt;now-30d" in listed
    assert "/ui/attributes/activity.lastEvent" in listed
    assert "None" not in listed
    ledger = re.sub("<[^>]+>", "", person.get("/ui/triggers/of-attribute/ledger"))
    assert "attribute activity.lastEvent changes" in ledger


def crossed(whole: Whole, trigger: str) -> None:
    """Let the ledger have crossings of three outcomes."""
    whole.process([raw(EVENT | {"messageId": f"crosses for {trigger}"}, source="segment")])
    known, now = whole.pipeline.store.name("user_id:3474"), round(time.time() * 1000)
    outcomes: list[tuple[Any, str, int | None]] = [
        ("fired", "", None),
        ("suppressed", "limit: 1 per 7d", None),
        ("held", "", now + 3_600_000),
    ]
    TriggerLedger(whole.documents).append(
        LedgerLine(
            f"{number:032x}", trigger, 1, person.hex(), number, now - 900_000, now - 60_000 + number, *each
        )
        for number, (person, each) in enumerate(zip((known, bytes(16), known), outcomes, strict=True))
    )


def test_the_ledger_of_a_trigger_shows_what_came_of_each_crossing(whole: Whole) -> None:
    api, person = whole.site.api(), whole.site.signed_in()
    api.put("/v1/triggers/hello", json=HELLO).raise_for_status()
    place = "/ui/triggers/hello/ledger"
    eventually(lambda: "No crossing yet" in person.get(place))
    crossed(whole, "hello")
    listed = re.sub("<[^>]+>", "", person.get("/ui/triggers?q=hello"))
    assert "1 held, 1 suppressed, 1 fired" in listed
    shown = person.get(place)
    assert "limit: 1 per 7d" in shown
    assert "/ui/profiles/user_id%3A3474" in shown
    assert "nobody any more" in shown
    assert shown.index(">Held<") < shown.index(">Suppressed<") < shown.index(">Fired<")
    suppressed = person.get(f"{place}?outcome=suppressed")
    assert "limit: 1 per 7d" in suppressed
    assert ">Fired</span>" not in suppressed
    assert "No crossing of this outcome" in person.get(f"{place}?outcome=failed")
    person.get(f"{place}?outcome=lost", 422)
    assert 'rel="next"' not in shown
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metadata_service.ui.definitions.CROSSINGS_SHOWN", 2)
        first = person.get(place)
        following = re.search(r'rel="next" href="([^"]+)"', first)
        assert following
        second = person.get(f"{place}{html.unescape(following[1])}")
        assert (">Fired</span>" in first, ">Fired</span>" in second) == (False, True)
        assert ">Held</span>" not in second
    person.get("/ui/triggers/none/ledger", 404)


def _tried(page: str) -> str:
    return page.partition('id="tried"')[2].partition("</section>")[0]
