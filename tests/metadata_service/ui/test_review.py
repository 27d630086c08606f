"""The review list: refused links by cause, decided with their effect."""

from __future__ import annotations

import html
import json
import re
from urllib.parse import quote

import pytest

from idgraph.model.callers import Scope
from metadata_service.ui.review import compared
from profile_service.api.routes import links
from tests.metadata_service.ui.site import EVENT, Whole
from tests.metadata_service.ui.test_deciding import ANN, BEN, RULES, form, shared
from tests.metadata_service.ui.test_profiles import reader
from tests.retail import raw
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


__all__ = ["shared"]

REVIEW = "/ui/review/violations"


def forms(page: str) -> list[str]:
    return re.findall(r"<li><form.*?</form>", page, re.S)


def test_refused_links_are_decided_one_cause_after_the_other(shared: Whole) -> None:
    person = reader(shared, "reviewing", 50, Scope.LINKS)
    token = re.findall(r'value="email:(~[^"]+)"', person.get(f"/ui/profiles/{ANN}/explain"))[0][:7]
    address, sign = REVIEW, "?"
    while token not in (page := person.get(address)):
        following = re.search(r'href="(\?[^"]*cursor=[^"]*)"[^>]*>(?:Next page|Look on)', page)
        assert following, page
        address, sign = REVIEW + following[1].replace("&amp;", "&"), "&"
    items = re.findall(r"<li (?:class=\"chosen\")?><a href.*?</li>", page, re.S)
    number = next(place for place, each in enumerate(items) if token in each)
    address = f"{address}{sign}sel={number}"
    page = person.get(address)
    for each in (ANN, BEN):
        assert f"/ui/profiles/{quote(each, safe='')}" in page
    assert "zoe@" not in page
    choice = next(each for each in forms(page) if "Leave it" in each)
    effect = person.post("/ui/links", form(choice) | {"act": "preview"})
    assert "Unlink, 1 pin" in effect
    assert "Decided" in person.post("/ui/links", form(effect) | {"act": "decide", "reason": "as it is"})
    assert quote(BEN, safe="") not in person.get(address)


def test_persons_claim_an_identifier_and_get_it_not_their_fragments(shared: Whole) -> None:
    api = shared.site.api()
    nobodys = RULES | {"namespaces": RULES["namespaces"] | {"email": {"owner": "none"}}}
    api.put("/v1/identity-rules?reason=contested", json=nobodys).raise_for_status()
    person = reader(shared, "reviewing persons", 50, Scope.LINKS)
    for user in ("88011", "88012"):
        event = EVENT | {
            "messageId": f"m-claims-{user}",
            "userId": user,
            "anonymousId": f"phone-{user}",
            "traits": {"email": "both@example.com"},
            "properties": {"cartId": f"cart-{user}"},
        }
        shared.process([raw(event, source="segment")])
    try:
        explained = "/ui/profiles/user_id:88011/explain"
        eventually(lambda: "several claim it" in person.get(explained))
        token = re.findall(r"email</span> .*?<code class=\"third\">(~[^<]+)<", person.get(explained), re.S)[0]
        page = person.get(REVIEW)
        items = re.findall(r"<li (?:class=\"chosen\")?><a href.*?</li>", page, re.S)
        number = next(place for place, each in enumerate(items) if token in each)
        page = person.get(f"{REVIEW}?sel={number}")
        claims = re.findall(r'<li class="card"><h3>(.*?)</h3>', page, re.S)
        assert [re.findall(r"<code>(\w+)</code>", each) for each in claims] == [["88011"], ["88012"]]
        choices = [each for each in forms(page) if "Give it to" in each]
        assert [re.findall(r"<code>(\w+)</code>", each) for each in choices] == [["88011"], ["88012"]]
        # It is given by one pin; the pins that keep it from the others have none of this person.
        fields = [json.loads(each) for name, each in form(choices[1]).items() if name.startswith("pin-")]
        given = [other for _, other, decision in fields if decision == "always"]
        assert len(given) == 1
        kept = {other for _, other, decision in fields if decision == "never"}
        assert "user_id:88011" in kept
        assert not any("88012" in each for each in kept)
        effect = person.post("/ui/links", form(choices[1]) | {"act": "preview"})
        assert re.search(r"profiles? changes?", effect)
    finally:
        api.put("/v1/identity-rules?reason=back", json=RULES).raise_for_status()
        eventually(lambda: "several claim it" not in person.get(explained))


def test_persons_are_compared_by_what_people_know_of_each_other() -> None:
    one = {
        "activity.lastSeenAt": 1712052000000,
        "activity.productName": "Guitar",
        "identity.name.full": {"$protected": True},
        "address.shipping.city": "Lyon",
        "orders.total": 12.5,
        "orders.currency": "EUR",
    }
    other = one | {"orders.total": 99, "activity.lastSeenAt": 1712059000000, "activity.productName": "Drum"}
    found = list(compared([one, other]))
    assert found[:3] == ["address.shipping.city", "identity.name.full", "orders.total"]
    assert set(found[3:]) == {"activity.lastSeenAt", "activity.productName"}


def test_an_empty_page_goes_on_until_it_is_stopped(shared: Whole, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "LOOKED_AT_ONCE", 1)
    monkeypatch.setattr(links, "MOST_SECONDS", 0.0)
    person = reader(shared, "patient reviewer", 50, Scope.LINKS)
    page = person.get(REVIEW)
    following = html.unescape(re.findall(r'hx-get="(\?[^"]*cursor=[^"]*)"', page)[0])
    assert "looked=1" in following
    assert "About 2 fragments" in person.get(REVIEW + following)
    stopped = person.get(REVIEW + html.unescape(re.findall(r'id="stop" href="([^"]+)"', page)[0]))
    assert "Stopped" in stopped
    assert "hx-replace-url" not in stopped


def test_who_may_not_decide_has_no_review(shared: Whole) -> None:
    person = reader(shared, "not reviewing", 50)
    assert REVIEW not in person.get("/ui/profiles")
    assert "Ask for access" in person.get(REVIEW, 403)


def test_suggestions_are_decided_one_by_one(shared: Whole) -> None:
    person = reader(shared, "suggesting", 50, Scope.LINKS)
    page = "/ui/review/suggestions"
    assert page in person.get(REVIEW)
    shared.jobs.suggested = [(ANN, BEN), ("user_id:3474", ANN), ("user_id:gone", ANN)]
    asked = {"attributes": "demographics.age, activity.platform", "least_weight": "4"}
    assert "valid number" in person.post(page, asked | {"least_weight": "much"}, 422)
    assert "Find suggestions" in person.post(page, asked | {"attributes": "demographics.age"}, 422)
    found = person.post(page, asked)
    assert found.count("weight 4.0") == 2
    pin = html.unescape(re.findall(r'name="pin-00" value="([^"]*never[^"]*)"', found)[0])
    back = form(found) | {"pin-00": pin}
    effect = person.post("/ui/links", back)
    decided = person.post("/ui/links", form(effect) | {"act": "decide", "reason": "two of a family"})
    assert "Decided" in decided
    assert person.get(back["back"]).count("weight 4.0") == 1
    low = reader(shared, "not suggesting", 50)
    low.get(page, 403)
    low.post(page, asked, 403)
