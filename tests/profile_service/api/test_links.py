"""Decisions on links over HTTP: what they would do, what joins next, and that they hold for the evidence that was seen."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from idgraph.model.callers import Scope
from idgraph.model.events import RawRecord
from idgraph.model.identity_rules import IdentityRules
from tests.profile_service.api.conftest import Served, caller, problem, served_here, with_levels
from tests.retail import Pipeline, raw

pytestmark = pytest.mark.slow


MAIL = "email:ann@example.com"
ANN, BOB, EVE = "user_id:1", "user_id:2", "user_id:3"
RULES = IdentityRules.model_validate({"namespaces": {"user_id": {"unique": True}, "email": {}}})
UNLINK = {"pair": [ANN, MAIL], "decision": "never"}


def shown(day: int, user: str, mail: str = MAIL) -> RawRecord:
    """An event of the web shop that shows these two identifiers."""
    event = {
        "timestamp": f"2024-03-0{day}T00:00:00Z",
        "userId": user.partition(":")[2],
        "type": "identify",
        "traits": {"email": mail.partition(":")[2]},
        "messageId": f"m-{day}-{user}",
    }
    return raw(event, source="segment")


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    """An e-mail address that three customers showed: it is Ann's, and the rules refuse the others."""
    known = with_levels({"identity.email": 40}).model_copy(update={"identity_rules": RULES})
    pipeline = Pipeline(tmp_path, snapshot=known)
    pipeline.process([shown(day, each) for day, each in enumerate((ANN, BOB, EVE), 1)])
    callers = [
        caller("decider", 100, scopes=[Scope.LINKS]),
        caller("low", 0, scopes=[Scope.LINKS]),
        caller("reader", 100, may_reveal=True, scopes=[Scope.PRIVACY, Scope.RULES, Scope.PERSONS]),
    ]
    with served_here(pipeline, callers, project=lambda _: pipeline.project().is_whole) as found:
        yield found


@pytest.fixture
def decider(served: Served) -> httpx.Client:
    return served.client("decider")


def preview(client: httpx.Client, *pins: dict[str, Any]) -> dict[str, Any]:
    answer = client.post("/v1/links/preview", json={"pins": pins})
    assert answer.status_code == 200, answer.text
    assert answer.headers["ETag"] == answer.json()["etag"]
    found: dict[str, Any] = answer.json()
    return found


def owner(client: httpx.Client) -> str:
    return str(client.get(f"/v1/profiles/{MAIL}").json()["id"])


def exported(served: Served) -> bytes:
    return served.pipeline.export(reveal=True)


def test_a_preview_says_what_joins_next_and_changes_nothing(served: Served, decider: httpx.Client) -> None:
    before = exported(served)
    found = preview(decider, UNLINK)
    hashed = next(
        each for each in decider.get(f"/v1/profiles/{ANN}").json()["identifiers"] if "~" in str(each)
    )
    mail = f"email:{hashed['value']}"
    assert [each["decision"] for each in found["pins"]] == ["never"]
    states = {each["id"]: each["state"] for each in found["profiles"]}
    assert states == {ANN: "changes", BOB: "changes"}
    (joining,) = found["joining"]
    assert sorted(joining["pair"]) == sorted([mail, BOB])
    assert (joining["rule"], joining["evidence"][0]["source"]) == ("max:user_id", "segment")
    ann, bob = found["profiles"]
    assert set(ann["identifiers_before"]) - set(ann["identifiers"]) == {mail}
    assert set(bob["identifiers"]) - set(bob["identifiers_before"]) == {mail}
    assert [each["pair"] for each in found["refused_no_more"]] == [joining["pair"]]
    assert exported(served) == before
    assert served.pipeline.store.pins_of([ANN]) == []
    # Pinned away from everybody, it is a profile of its own or nobody's.
    away = [{"pair": [each, MAIL], "decision": "never"} for each in (ANN, BOB, EVE)]
    assert preview(decider, *away)["joining"] == []


def test_a_decision_holds_for_look_ups_and_searches_and_is_taken_back(
    served: Served, decider: httpx.Client
) -> None:
    before = exported(served)
    assert owner(decider) == ANN
    etag = preview(decider, UNLINK)["etag"]
    body = {"pins": [UNLINK], "reason": "her brother's"}
    done = decider.post("/v1/links", json=body, headers={"If-Match": etag})
    assert (done.status_code, done.json()["searchable"]) == (200, True)
    assert owner(decider) == BOB
    found = decider.get("/v1/search", params={"q": "identity.email=ann@example.com"}).json()["items"]
    assert sorted(each["id"] for each in found) == [ANN, BOB, EVE]
    (pin,) = served.pipeline.store.pins_of([ANN])
    assert (pin.who, pin.why) == ("decider", "her brother's")
    (line,) = map(json.loads, served.audit.read_text().splitlines())
    assert (line["action"], line["caller"], line["purpose"]) == ("pin never", "decider", "her brother's")
    assert "ann@" not in served.audit.read_text()
    assert ANN not in served.audit.read_text()
    back = {"pins": [UNLINK | {"decision": "none"}], "reason": "a mistake"}
    history = f"/v1/profiles/{ANN}/history"
    (told,) = decider.get(history).json()["decisions"]
    assert (told["decision"], told["who"], told["why"], ANN in told["pair"]) == (
        "never",
        "decider",
        "her brother's",
        True,
    )
    assert "ann@" not in decider.get(history).text
    (untold,) = served.client("reader").get(history).json()["decisions"]
    assert untold == {name: told[name] for name in ("pair", "decision", "at")}
    assert served.client("low").get(history).json()["decisions"] == []
    assert decider.post("/v1/links", json=back).json()["pins"][0]["decision"] == "none"
    assert exported(served) == before
    assert decider.post("/v1/links", json=back).json()["pins"] == []
    decisions = decider.get(history).json()["decisions"]
    assert [(each["decision"], each["why"]) for each in decisions] == [
        ("never", "her brother's"),
        ("none", "a mistake"),
    ]


def test_evidence_that_arrived_meanwhile_refuses_the_decision(served: Served, decider: httpx.Client) -> None:
    etag = preview(decider, UNLINK)["etag"]
    assert preview(decider, UNLINK)["etag"] == etag
    served.pipeline.process([shown(4, "user_id:9", "email:else@example.com")])
    assert preview(decider, UNLINK)["etag"] == etag
    served.pipeline.process([shown(5, "user_id:4")])
    body = {"pins": [UNLINK], "reason": "late"}
    problem(decider.post("/v1/links", json=body, headers={"If-Match": etag}), 412)
    assert owner(decider) == ANN
    newer = preview(decider, UNLINK)["etag"]
    assert newer != etag
    assert decider.post("/v1/links", json=body, headers={"If-Match": newer}).status_code == 200
    # A decision is something that a preview sees, too.
    problem(decider.post("/v1/links", json=body, headers={"If-Match": newer}), 412)


def test_only_deciders_decide_and_only_on_what_they_see(served: Served, decider: httpx.Client) -> None:
    body = {"pins": [UNLINK]}
    for path, more in (("/v1/links/preview", {}), ("/v1/links", {"reason": "x"})):
        problem(served.client("reader").post(path, json=body | more), 403)
        problem(served.client("low").post(path, json=body | more), 404)
        same = {"pins": [{"pair": [ANN, ANN], "decision": "never"}]}
        assert problem(decider.post(path, json=same | more), 422)["pointer"] == "/pins/0/pair"
        nobody = {"pins": [{"pair": [ANN, "user_id:nobody"], "decision": "never"}]}
        problem(decider.post(path, json=nobody | more), 404)
        problem(decider.post(path, json={"pins": [{"pair": ["x", ANN], "decision": "never"}]} | more), 400)
    problem(decider.post("/v1/links", json=body | {"reason": ""}), 422)
    low = preview(served.client("low"), {"pair": [ANN, BOB], "decision": "always"})
    assert {each["id"] for each in low["profiles"]} == {ANN, BOB}
    assert "mail" not in json.dumps(low)


def test_an_explanation_names_the_path_between_two(served: Served, decider: httpx.Client) -> None:
    (found,) = decider.get(f"/v1/profiles/{ANN}/explain", params={"with": MAIL}).json()["items"]
    (step,) = found["path"]
    assert (step["splits"], step["evidence"][0]["source"]) == (True, "segment")
    (found,) = decider.get(f"/v1/profiles/{ANN}/explain", params={"with": BOB}).json()["items"]
    assert found["path"] == []
    assert "path" not in decider.get(f"/v1/profiles/{ANN}/explain").json()["items"][0]
    problem(decider.get(f"/v1/profiles/{ANN}/explain", params={"with": "user_id:nobody"}), 404)
    problem(served.client("low").get(f"/v1/profiles/{ANN}/explain", params={"with": MAIL}), 404)


def test_refused_links_are_listed_by_cause_on_one_page_each(served: Served, decider: httpx.Client) -> None:
    served.pipeline.process(
        [shown(day, f"user_id:{day}", "email:other@example.com") for day in (6, 7)]
        + [shown(8, f"user_id:x{number}", f"email:{number}@example.com") for number in range(1500)]
    )
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] = {}
    pages = 0
    while pages == 0 or cursor:
        page = decider.get("/v1/links/violations", params={"limit": 1, **cursor}).json()
        found += page["items"]
        cursor = {"cursor": page["next"]} if page["next"] else {}
        pages += 1
    assert pages > 1
    shown_groups = {each["owner"]: each for each in found}
    assert len(found) == len(shown_groups) == 2
    ann = shown_groups[ANN]
    assert (ann["rule"], ann["identifier"].partition(":~")[0]) == ("max:user_id", "email")
    assert [each["pair"] for each in ann["refused"]] == [[ann["identifier"], each] for each in (BOB, EVE)]
    assert ann["rivals"] == [ANN]
    assert [each["pair"] for each in ann["accepted"]] == [[ann["identifier"], ANN]]
    assert served.client("low").get("/v1/links/violations").json()["items"] == []
    problem(served.client("reader").get("/v1/links/violations"), 403)
    problem(decider.get("/v1/links/violations", params={"cursor": "AAAA"}), 400)
    # What somebody decided waits for nobody.
    for each in (BOB, EVE):
        body = {"pins": [{"pair": [each, MAIL], "decision": "never"}], "reason": "not theirs"}
        assert decider.post("/v1/links", json=body).status_code == 200
    left = decider.get("/v1/links/violations", params={"limit": 200}).json()["items"]
    assert [each["owner"] for each in left] == ["user_id:6"]


def test_what_several_claim_and_nobody_has_is_one_cause(tmp_path: Path) -> None:
    """Found in a browser: an identifier that no profile has was taken for one that has a profile."""
    pipeline = Pipeline(tmp_path, snapshot=with_levels({}))
    pipeline.process([shown(day, each) for day, each in enumerate((ANN, BOB, EVE), 1)])
    with served_here(pipeline, [caller("decider", 100, scopes=[Scope.LINKS])]) as served:
        (found,) = served.client("decider").get("/v1/links/violations").json()["items"]
    assert (found["rule"], found["owner"], found["rivals"]) == ("contested", None, [])
    assert [each["pair"][1] for each in found["refused"]] == [ANN, BOB, EVE]
