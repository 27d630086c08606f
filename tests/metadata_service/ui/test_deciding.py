"""Why identifiers are one person, and decisions on that, as pages."""

from __future__ import annotations

import html
import json
import re
from itertools import pairwise

import pytest

from idgraph.model.callers import Scope
from metadata_service.ui.link_picture import MOST_NODES, link_picture
from tests.metadata_service.ui.site import EVENT, Whole
from tests.metadata_service.ui.test_profiles import reader
from tests.retail import raw
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


ANN, BEN, MAIL = "user_id:88001", "user_id:88002", "email:zoe@example.com"
EXPLAIN = f"/ui/profiles/{ANN}/explain?with={MAIL}"
RULES = {"namespaces": {"user_id": {"unique": True}, "email": {}, "anonymous_id": {"moves": "latest"}}}


@pytest.fixture(scope="module")
def shared(whole: Whole) -> Whole:
    """Two customers showed one address, which is the first one's."""
    whole.site.api().put("/v1/identity-rules?reason=test", json=RULES).raise_for_status()
    for number, each in enumerate((ANN, BEN), 1):
        seen(whole, number, each)
    low = reader(whole, "waiting for the rules", 50)
    eventually(lambda: "more than a person may have" in low.get(f"/ui/profiles/{ANN}/explain"))
    return whole


def seen(whole: Whole, number: int, user: str) -> None:
    """An event that shows a customer, a tablet and the address."""
    event = EVENT | {
        "messageId": f"m-{user}-{number}",
        "timestamp": f"2024-03-16T0{number}:00:00Z",
        "userId": user.partition(":")[2],
        "anonymousId": f"tablet-{user[-1]}",
        "traits": {"email": "zoe@example.com"},
        "properties": {"cartId": f"cart-{user[-1]}"},
    }
    whole.process([raw(event, source="segment")])


def form(page: str, action: str = "/ui/links") -> dict[str, str]:
    """The fields of a form as a browser sends them."""
    found = re.search(rf'<form[^>]*action="{action}"[^>]*>(.*?)</form>', page, re.S)
    assert found, page
    fields = {}
    for tag in re.findall(r"<input[^>]*>", found[1]):
        name, value = (re.search(rf' {each}="([^"]*)"', tag) for each in ("name", "value"))
        if name and value and ('type="checkbox"' not in tag or " checked" in tag):
            fields[name[1]] = html.unescape(value[1])
    return fields


def test_unlinking_shows_what_joins_next_and_is_undone(shared: Whole) -> None:
    person = reader(shared, "deciding", 50, Scope.LINKS)
    assert "Explain or unlink" in person.get(f"/ui/profiles/{ANN}")
    page = person.get(EXPLAIN)
    assert "other link joins next" in page
    fields = form(page)
    assert BEN in fields["also-00"]
    assert "Unlink, 2 pins" in page
    # With one pin the address goes to the other customer, and that is shown before it is decided.
    one = {name: value for name, value in fields.items() if name != "also-00"}
    alone = person.post("/ui/links", one | {"act": "decide", "reason": "a visitor's"}, 412)
    assert "Unlink, 1 pin" in alone
    assert "a visitor&#39;s" in alone
    assert "Say why" in person.post("/ui/links", fields | {"act": "decide", "reason": " "}, 422)
    decided = person.post("/ui/links", fields | {"act": "decide", "reason": "a visitor's"})
    assert "Unlinked" in decided
    assert "They are not one person" in person.get(EXPLAIN)
    back = person.post("/ui/links", form(decided) | {"act": "preview"})
    assert "Remove, 2 pins" in back
    assert "Pin removed" in person.post("/ui/links", form(back) | {"act": "decide", "reason": "hers"})
    assert "splits them" in person.get(EXPLAIN)
    # Days later it is undone from the person's page, which then offers it no more.
    assert "Remove the pin" not in person.get(f"/ui/profiles/{ANN}")
    fields = form(person.get(EXPLAIN))
    person.post("/ui/links", fields | {"act": "decide", "reason": "two of them"})
    page = person.get(f"/ui/profiles/{ANN}")
    assert "Remove the pin" not in reader(shared, "who only looks", 50).get(f"/ui/profiles/{ANN}")
    while address := re.search(r'href="(/ui/links/new[^"]+decision=none)"', page):
        effect = person.get(html.unescape(address[1]))
        assert "Pin removed" in person.post(
            "/ui/links", form(effect) | {"act": "decide", "reason": "one, after all"}
        )
        page = person.get(f"/ui/profiles/{ANN}")
    assert "splits them" in person.get(EXPLAIN)
    linked = person.get(f"/ui/links/new?one={ANN}&other={BEN}")
    assert "Link, 1 pin" in linked


def test_evidence_that_arrives_meanwhile_computes_the_effect_again(shared: Whole) -> None:
    person = reader(shared, "late", 50, Scope.LINKS)
    fields = form(person.get(EXPLAIN)) | {"act": "decide", "reason": "as before"}
    seen(shared, 3, "user_id:88003")
    again = person.post("/ui/links", fields, 412)
    assert "Evidence arrived" in again
    assert "as before" in again
    assert "Unlinked" not in again


def test_who_only_reads_is_offered_no_decision(shared: Whole) -> None:
    page = reader(shared, "only reading", 50).get(EXPLAIN)
    assert 'action="/ui/links"' not in page
    assert "scope <code>links</code>" in page
    person = reader(shared, "only reading too", 50)
    fields = {"pin-0": json.dumps([ANN, MAIL, "never"]), "act": "preview"}
    assert "Ask for access" in person.post("/ui/links", fields, 403)
    person.get("/ui/profiles/user_id:nobody-88/explain", 404)
    for wrong in ("[]", "x", "[1]"):
        person.post("/ui/links", {"pin-0": wrong}, 422)
    low = reader(shared, "lower", 0, Scope.LINKS)
    assert "sealed" not in low.get(f"/ui/profiles/{ANN}/explain")
    low.get(EXPLAIN, 404)


def test_a_picture_groups_and_leaves_out_what_has_no_room() -> None:
    many = [f"device_id:{number}" for number in range(200)]
    links = [{"pair": ["user_id:1", each], "evidence": [{"source": "shop"}]} for each in many]
    refused = [{"pair": [many[0], "user_id:2"], "evidence": [], "rule": "max:user_id"}]
    drawn = link_picture("user_id:1", ["user_id:1", *many], links, refused)
    assert sorted((each.type, each.kind) for each in drawn.nodes) == [
        ("device_id", ""),
        ("device_id", ""),
        ("user_id", "refused"),
        ("user_id", "root"),
    ]
    assert drawn.left_out == 0
    chain = [f"a:{number}" for number in range(3000)]
    links = [{"pair": list(pair), "evidence": []} for pair in pairwise(chain)]
    drawn = link_picture(chain[0], chain, links, [])
    assert (len(drawn.nodes), drawn.left_out) == (MOST_NODES, 3000 - MOST_NODES)
    alone = link_picture("a:1", ["a:1", "b:~sealed"], [], [])
    assert [each.kind for each in alone.nodes] == ["root", "sealed"]


def test_an_upright_picture_of_a_long_chain_fits_a_side_column() -> None:
    names = [f"device_id:{number}" for number in range(7)]
    links = [{"pair": list(pair), "evidence": [{"source": "amplitude"}]} for pair in pairwise(names)]
    refused = [{"pair": [names[3], "user_id:9"], "evidence": [], "rule": "max:user_id"}]
    drawn = link_picture(names[0], names, links, refused, is_upright=True)
    assert drawn.width <= 286
    assert all(0 <= each.x <= drawn.width - 112 for each in drawn.nodes)
    assert len({each.y for each in drawn.nodes}) == len(drawn.nodes) == 8
    assert [each.is_refused for each in drawn.lines].count(True) == 1
    assert len(drawn.lines) == 7
