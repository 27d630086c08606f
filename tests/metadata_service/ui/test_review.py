"""The review list: refused links by cause, decided with their effect."""

from __future__ import annotations

import html
import re
from urllib.parse import quote

import pytest

from idgraph.model.callers import Scope
from profile_service.api.routes import links
from tests.metadata_service.ui.site import Whole
from tests.metadata_service.ui.test_deciding import ANN, BEN, form, shared
from tests.metadata_service.ui.test_profiles import reader

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
