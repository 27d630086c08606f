"""Households over HTTP: each act by the person's own token; what is shared is what the giver has by now."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from idgraph.model.callers import Scope
from idgraph.model.identifiers import Identifier
from idgraph.web.limits import RateLimit
from idgraph.web.server import serving
from profile_service.api.app import create_app
from profile_service.api.households import MOST_HOUSEHOLDS, Households
from profile_service.api.person_tokens import PersonTokens
from profile_service.api.rights import Rights
from sinks.sqlite.households import SqliteHouseholdLog
from tests.profile_service.api.conftest import LEVELS, Served, caller, problem, served_here, with_levels
from tests.retail import Pipeline, raw

pytestmark = pytest.mark.slow


KEY = b"key of the tests"


def person(number: int, day: int = 2, **traits: Any) -> Any:
    event = {
        "timestamp": f"2024-03-{day:02}T00:00:00.{number:06}+00:00",
        "userId": f"{number}",
        "anonymousId": f"device-{number}",
        "type": "identify",
        "traits": {
            "email": f"p{number}@example.com",
            "age": 30 + number,
            "name": f"Person {number}",
            **traits,
        },
        "messageId": f"{number} {traits}",
    }
    return raw(event, number, source="segment")


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Served]:
    pipeline = Pipeline(tmp_path, snapshot=with_levels(LEVELS))
    pipeline.process(person(number) for number in (1, 2, 3))
    callers = [
        caller("portal", 100, may_reveal=True, scopes=[Scope.PERSONS]),
        caller("kiosk", 50, scopes=[Scope.PERSONS]),
        caller("reader", 100, may_reveal=True, scopes=[Scope.PRIVACY, Scope.LINKS]),
        caller("plain", 100),
    ]
    with closing(SqliteHouseholdLog(tmp_path / "households.db")) as log:
        hashed = pipeline.blind_index.identifier
        households = Households(log, lambda name: str(hashed(Identifier.parse(name))))
        rights = Rights(households=households, tokens=PersonTokens(KEY))
        with served_here(pipeline, callers, rights=rights) as found:
            yield found


def token(home: Served, number: int, issuer: str = "portal") -> str:
    by = {"portal": "user_id", "kiosk": "anonymous_id"}[issuer]
    value = {"user_id": f"{number}", "anonymous_id": f"device-{number}"}[by]
    answer = home.client(issuer).post("/v1/person-tokens", json={"identifier": f"{by}:{value}"})
    assert answer.status_code == 201, answer.text
    return str(answer.json()["token"])


def me(home: Served, number: int, issuer: str = "portal") -> httpx.Client:
    return home.client(token(home, number, issuer))


def joined(home: Served, *members: httpx.Client) -> str:
    first, *others = members
    household = first.post("/v1/me/households", json={"name": "first"}).json()["id"]
    for number, each in enumerate(others):
        code = first.post(f"/v1/me/households/{household}/invitations").json()["code"]
        accepted = each.post("/v1/me/invitations/accept", json={"code": code, "name": f"other {number}"})
        assert accepted.json() == {"id": household}
    return str(household)


def view(who: httpx.Client) -> dict[str, Any]:
    (found,) = who.get("/v1/me/households").json()["items"]
    return dict(found)


def share(giver: httpx.Client, attribute: str, *to: httpx.Client, **terms: Any) -> httpx.Response:
    known = view(giver)
    body = {"attribute": attribute, "to": [view(each)["me"][0] for each in to], "purpose": "a loan", **terms}
    return giver.put(f"/v1/me/households/{known['id']}/shares", json={"shares": [body]})


def test_an_attribute_is_shared_one_way_until_it_is_not(home: Served) -> None:
    ann, bea, cid = (me(home, number) for number in (1, 2, 3))
    joined(home, ann, bea, cid)
    assert share(ann, "demographics.age", bea).status_code == 204
    assert [view(each)["shared_with_me"] for each in (ann, cid)] == [[], []]
    (shared,) = view(bea)["shared_with_me"]
    assert shared == {
        "member": view(ann)["me"][0],
        "attribute": "demographics.age",
        "purpose": "a loan",
        "until": None,
        "attributes": {"demographics": {"age": 31}},
    }
    home.pipeline.process([person(1, 3, age=77)])
    assert view(bea)["shared_with_me"][0]["attributes"] == {"demographics": {"age": 77}}
    assert ann.put(f"/v1/me/households/{view(ann)['id']}/shares", json={"shares": []}).status_code == 204
    assert view(bea)["shared_with_me"] == []
    assert share(ann, "demographics.age", bea, until="2020-01-01T00:00:00Z").status_code == 204
    assert view(bea)["shared_with_me"] == []
    problem(share(ann, "demographics.age", ann), 422)


def test_an_officer_reads_a_persons_own_part_of_a_household(home: Served) -> None:
    ann, bea = me(home, 1), me(home, 2)
    household = joined(home, ann, bea)
    assert share(ann, "demographics.age", bea).status_code == 204
    officer = home.client("reader")
    found = [officer.get(f"/v1/profiles/user_id:{each}/households").json()["items"] for each in (1, 2, 3)]
    shares = [{"attribute": "demographics.age", "purpose": "a loan", "until": None}]
    assert found[0] == [{"id": household, "names": ["first"], "shares": shares}]
    assert found[1] == [{"id": household, "names": ["other 0"], "shares": []}]
    assert found[2] == []
    problem(officer.get("/v1/profiles/user_id:nobody/households"), 404)


def test_leaving_ends_what_is_shared_both_ways(home: Served) -> None:
    ann, bea = me(home, 1), me(home, 2)
    household = joined(home, ann, bea)
    share(ann, "demographics", bea)
    share(bea, "demographics", ann)
    assert view(ann)["shared_with_me"]
    assert bea.post(f"/v1/me/households/{household}/leave").status_code == 204
    assert view(ann)["shared_with_me"] == []
    assert list(view(ann)["members"].values()) == ["first"]
    assert bea.get("/v1/me/households").json() == {"items": []}
    problem(bea.post(f"/v1/me/households/{household}/leave"), 404)


def test_protected_values_are_opened_by_the_issuers_right_and_recorded(home: Served) -> None:
    ann, bea, masked = me(home, 1), me(home, 2), me(home, 2, "kiosk")
    joined(home, ann, bea)
    share(ann, "identity.email", bea)
    assert view(bea)["shared_with_me"][0]["attributes"] == {"identity": {"email": "p1@example.com"}}
    assert '"purpose":"a loan"' in home.audit.read_text()
    assert view(masked)["shared_with_me"][0]["attributes"] == {"identity": {"email": {"$protected": True}}}
    share(ann, "identity.userId", bea)
    assert view(bea)["shared_with_me"][0]["attributes"] == {"identity": {"userId": "1"}}
    # Above the clearance of the issuer.
    assert view(masked)["shared_with_me"][0]["attributes"] == {}


def test_a_code_is_for_one_and_a_declined_one_for_none(home: Served) -> None:
    ann, bea, cid = (me(home, number) for number in (1, 2, 3))
    household = joined(home, ann)
    codes = [ann.post(f"/v1/me/households/{household}/invitations").json()["code"] for _ in range(2)]
    assert bea.post("/v1/me/invitations/decline", json={"code": codes[0]}).status_code == 204
    for code in (codes[0], "nonsense", f"{household}.guess"):
        problem(bea.post("/v1/me/invitations/accept", json={"code": code, "name": "B"}), 404)
    assert bea.post("/v1/me/invitations/accept", json={"code": codes[1], "name": "B"}).status_code == 200
    problem(cid.post("/v1/me/invitations/accept", json={"code": codes[1], "name": "C"}), 404)
    problem(cid.post(f"/v1/me/households/{household}/invitations"), 404)
    problem(cid.put(f"/v1/me/households/{household}/shares", json={"shares": []}), 404)


def pin(home: Served, one: int, other: int, decision: str) -> None:
    """Somebody decides that two persons are one, or are not."""
    pins = [{"pair": [f"user_id:{one}", f"user_id:{other}"], "decision": decision}]
    answer = home.client("reader").post("/v1/links", json={"pins": pins, "reason": "x"})
    assert answer.status_code == 200, answer.text


def households(who: httpx.Client) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = who.get("/v1/me/households").json()["items"]
    return found


def test_after_a_merge_the_household_follows_and_after_a_split_it_goes_back(home: Served) -> None:
    ann, bea, cid = (me(home, number) for number in (1, 2, 3))
    joined(home, ann, bea)
    share(ann, "demographics.age", bea)
    share(bea, "demographics.age", ann)
    pin(home, 1, 2, "always")
    for each in (ann, bea):
        assert len(view(each)["me"]) == 2
        # They share nothing with themselves.
        assert view(each)["shared_with_me"] == []
    assert households(cid) == []
    pin(home, 1, 2, "never")
    for each, age in ((ann, 32), (bea, 31)):
        assert len(view(each)["me"]) == 1
        (shared,) = view(each)["shared_with_me"]
        assert shared["attributes"] == {"demographics": {"age": age}}


def test_what_a_person_did_while_merged_with_another_stays_with_them(home: Served) -> None:
    pin(home, 1, 2, "always")
    # The profile is Ann's by its id; Bea was asked.
    bea, cid = me(home, 2), me(home, 3)
    joined(home, cid, bea)
    assert share(cid, "demographics.age", bea).status_code == 204
    assert share(bea, "demographics.age", cid).status_code == 204
    ann = me(home, 1)
    assert households(ann) == households(bea) != []
    pin(home, 1, 2, "never")
    assert households(ann) == households(me(home, 1)) == []
    assert households(bea) == households(me(home, 2)) != []
    assert view(bea)["shared_with_me"][0]["attributes"] == {"demographics": {"age": 33}}
    assert view(cid)["shared_with_me"][0]["attributes"] == {"demographics": {"age": 32}}


def test_by_an_identifier_that_is_no_fragment_it_is_the_same(home: Served) -> None:
    """An e-mail address or a device leads to the fragment whose events showed it."""
    pin(home, 1, 2, "always")
    for by in ("anonymous_id:device-2", "email:p2@example.com"):
        issued = home.client("portal").post("/v1/person-tokens", json={"identifier": by})
        bea = home.client(issued.json()["token"])
        assert bea.post("/v1/me/households", json={"name": by}).status_code == 201
    pin(home, 1, 2, "never")
    assert (len(households(me(home, 1))), len(households(me(home, 2)))) == (0, 2)


def test_a_share_that_another_gave_as_the_same_person_ends_with_the_split(home: Served) -> None:
    bea, cid = me(home, 2), me(home, 3)
    joined(home, bea, cid)
    pin(home, 1, 3, "always")
    ann = me(home, 1)
    assert share(ann, "demographics.age", bea).status_code == 204
    (code, kept) = (ann.post(f"/v1/me/households/{view(bea)['id']}/invitations").json()["code"] for _ in "ab")
    assert me(home, 1).post("/v1/me/invitations/decline", json={"code": kept}).status_code == 204
    assert view(bea)["shared_with_me"]
    pin(home, 1, 3, "never")
    assert (view(bea)["shared_with_me"], view(cid)["i_share"]) == ([], [])
    problem(ann.post("/v1/me/invitations/accept", json={"code": code, "name": "A"}), 404)
    pin(home, 1, 3, "always")
    assert view(bea)["shared_with_me"]


def test_an_erasure_revives_nothing_that_was_ended(home: Served) -> None:
    bea, cid = me(home, 2), me(home, 3)
    household = joined(home, bea, cid)
    share(cid, "demographics.age", bea)
    pin(home, 1, 3, "always")
    assert me(home, 1).post(f"/v1/me/households/{household}/leave").status_code == 204
    pin(home, 1, 3, "never")
    assert (households(cid), view(bea)["shared_with_me"]) == ([], [])
    log = SqliteHouseholdLog(home.pipeline.folder / "households.db")
    with closing(log):
        log.erase([home.service.hashed("user_id:1")])
    assert (households(cid), view(bea)["shared_with_me"]) == ([], [])


def test_whoever_declines_or_leaves_often_may_still_join(home: Served) -> None:
    ann, bea, cid = (me(home, number) for number in (1, 2, 3))
    for _ in range(MOST_HOUSEHOLDS):
        household = ann.post("/v1/me/households", json={"name": "A"}).json()["id"]
        codes = [ann.post(f"/v1/me/households/{household}/invitations").json()["code"] for _ in "ab"]
        assert bea.post("/v1/me/invitations/decline", json={"code": codes[0]}).status_code == 204
        assert cid.post("/v1/me/invitations/accept", json={"code": codes[1], "name": "C"}).status_code == 200
        assert cid.post(f"/v1/me/households/{household}/leave").status_code == 204
    problem(ann.post("/v1/me/households", json={"name": "A"}), 409)
    for each in (bea, cid):
        assert each.post("/v1/me/households", json={"name": "B"}).status_code == 201


def test_who_may_call_what(home: Served) -> None:
    ann, reader, portal = me(home, 1), home.client("reader"), home.client("portal")
    for path in ("/v1/profiles/user_id:1", "/v1/search", "/v1/changes"):
        problem(ann.get(path), 403)
    problem(reader.get("/v1/me/households"), 403)
    problem(portal.get("/v1/me/households"), 403)
    problem(reader.post("/v1/person-tokens", json={"identifier": "user_id:1"}), 403)
    problem(ann.post("/v1/person-tokens", json={"identifier": "user_id:2"}), 403)
    # The identifier is hidden from this issuer, as one that nobody has.
    problem(home.client("kiosk").post("/v1/person-tokens", json={"identifier": "user_id:1"}), 404)
    problem(portal.post("/v1/person-tokens", json={"identifier": "user_id:1", "minutes": 61}), 422)
    whole = token(home, 1)
    content, _, mac = whole.partition(".")
    forged = [f"{content[:-1]}.{mac}", f"{content}.{mac[:-1]}", content, "idgp_", "idgp_.", f"{whole}x"]
    for each in forged:
        problem(home.client(each).get("/v1/me/households"), 401)


def test_a_token_ends_by_time_and_with_its_issuer() -> None:
    now = time.time()
    tokens = PersonTokens(KEY, lambda: now)
    portal = caller("portal", 7, scopes=[Scope.PERSONS])
    made, end = tokens.issue(portal, "user_id:1", 15)
    known = tokens.caller(made, lambda _: portal)
    assert known is not None
    assert (known.person, known.clearance, known.scopes) == ("user_id:1", 7, frozenset())
    assert tokens.caller(made, lambda _: None) is None
    assert tokens.caller(made, lambda _: portal.model_copy(update={"scopes": frozenset()})) is None
    assert PersonTokens(b"other").caller(made, lambda _: portal) is None
    now = end / 1000
    assert tokens.caller(made, lambda _: portal) is None


def test_a_person_reads_their_own_profile_as_far_as_the_application_may(home: Served) -> None:
    mine = me(home, 1).get("/v1/me", params={"provenance": True}).json()
    whole = home.client("portal").get("/v1/profiles/user_id:1", params={"provenance": True}).json()
    assert mine == whole
    assert me(home, 1).get("/v1/me?fields=demographics").json()["attributes"] == {"demographics": {"age": 31}}
    # The kiosk sees no customer numbers and e-mail addresses.
    less = me(home, 1, "kiosk").get("/v1/me").json()
    assert less == home.client("kiosk").get("/v1/profiles/anonymous_id:device-1").json()
    assert less["attributes"].keys() <= whole["attributes"].keys()
    assert less != mine
    problem(me(home, 1, "kiosk").get("/v1/me?reveal=true&purpose=x"), 403)
    assert me(home, 1).get("/v1/me?reveal=true&purpose=x").json()["attributes"]["identity"]
    problem(me(home, 1).get("/v1/me?field=demographics"), 400)
    for path in ("/v1/me", "/v1/me/consents"):
        problem(home.client("portal").get(path), 403)
    problem(me(home, 1).get("/v1/profiles/user_id:2"), 403)
    known = me(home, 1).get("/v1/me")
    again = me(home, 1).get("/v1/me", headers={"If-None-Match": known.headers["ETag"]})
    assert again.status_code == 304


def test_a_persons_tokens_share_one_rate(home: Served) -> None:
    app = create_app(home.service, RateLimit(0.001, 3))
    with serving(app) as url, httpx.Client(base_url=url, trust_env=False) as client:

        def status(bearer: str) -> int:
            return client.get("/v1/me", headers={"Authorization": f"Bearer {bearer}"}).status_code

        assert [status(token(home, 1)) for _ in range(5)] == [200, 200, 200, 429, 429]
        assert status(token(home, 2)) == 200
