"""The review list: refused links by cause, decided with their effect."""

from __future__ import annotations

import re
from urllib.parse import quote

from idgraph.model.callers import Scope
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


def test_who_may_not_decide_has_no_review(shared: Whole) -> None:
    person = reader(shared, "not reviewing", 50)
    assert REVIEW not in person.get("/ui/profiles")
    assert "Ask for access" in person.get(REVIEW, 403)
