"""Who weakens protection needs a second person: what is kept back, who may decide, what the history says."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from metadata_service.storage.tokens import Role
from tests.metadata_service.conftest import Running
from tests.metadata_service.test_proposals import change, patched
from tests.tokens import give_token

pytestmark = pytest.mark.slow


BOB = "token-of-a-second-person"


@pytest.fixture
def bob(service: Running) -> Iterator[httpx.Client]:
    """A second admin."""
    give_token(service.database, "bob", Role.ADMIN, BOB)
    with httpx.Client(base_url=service.url, headers={"Authorization": f"Bearer {BOB}"}, timeout=30) as caller:
        yield caller


def put(service: Running, path: str, encryption: str | None, **stated: Any) -> httpx.Response:
    said = {} if encryption is None else {"encryption": encryption}
    body = {"path": path, "data_type": "string", **said, **stated}
    return service.admin.put(f"/v1/attributes/{path}?reason=because", json=body)


def encryption(service: Running, path: str) -> str:
    return str(service.reader.get(f"/v1/attributes/{path}").json()["encryption"])


def waiting(service: Running) -> list[Any]:
    return list(service.reader.get("/v1/policy-changes?status=pending").json()["items"])


def decide(caller: httpx.Client, number: int, verdict: str, reason: str = "ok") -> httpx.Response:
    return caller.post(f"/v1/policy-changes/{number}/{verdict}", json={"reason": reason})


STEPS = [("protected", "none"), ("protected", "searchable"), ("searchable", "none")]


@pytest.mark.parametrize(("before", "after"), STEPS)
def test_protection_is_turned_off_by_two(
    service: Running, bob: httpx.Client, before: str, after: str
) -> None:
    assert put(service, "a", before).status_code == 201
    answer = put(service, "a", after)
    asked = answer.json()
    assert (answer.status_code, answer.headers["Location"]) == (202, f"/v1/policy-changes/{asked['id']}")
    assert (asked["status"], asked["weakens"]) == ("pending", [f"a: {before} to {after}"])
    assert encryption(service, "a") == before, "not in force yet"

    refused = decide(service.admin, asked["id"], "approve")
    assert (refused.status_code, refused.json()["type"]) == (409, "urn:idgraph:problem:sameperson")
    assert "a second person approves it" in refused.json()["detail"]
    assert encryption(service, "a") == before

    done = decide(bob, asked["id"], "approve", "seen the ticket").json()
    assert (done["status"], done["requested"]["actor"], done["requested"]["reason"]) == (
        "approved",
        "the admin",
        "because",
    )
    assert (done["decided"]["actor"], done["decided"]["reason"]) == ("bob", "seen the ticket")
    assert encryption(service, "a") == after
    log = service.reader.get("/v1/changes?kind=attribute&subject=a").json()["items"]
    assert [(line["action"], line["actor"]) for line in log] == [
        ("approved", "bob"),
        ("saved", "bob"),
        ("requested", "the admin"),
        ("saved", "the admin"),
    ]


@pytest.mark.parametrize(("after", "before"), STEPS)
def test_protection_is_turned_on_by_one(service: Running, before: str, after: str) -> None:
    put(service, "a", before)
    assert put(service, "a", after).status_code == 200
    assert encryption(service, "a") == after


def test_what_is_no_matter_of_protection_needs_one(service: Running) -> None:
    put(service, "a", "protected")
    assert put(service, "a", "protected", name="A", authorization_level=1).status_code == 200
    assert waiting(service) == []


def test_a_new_attribute_below_a_protected_one_is_opened_by_two(service: Running, bob: httpx.Client) -> None:
    """Found by review: one person pierced a protected subtree before its next key was known."""
    put(service, "payroll", "protected")
    put(service, "payroll.salary", "protected")
    answer = put(service, "payroll.bonus", "none")
    assert answer.status_code == 202, answer.text
    assert answer.json()["weakens"] == ["payroll.bonus: protected to none"]
    paths = [each["path"] for each in service.reader.get("/v1/snapshot").json()["attributes"]]
    assert paths == ["payroll", "payroll.salary"]
    assert decide(bob, answer.json()["id"], "approve").status_code == 200
    assert encryption(service, "payroll.bonus") == "none"
    assert put(service, "payroll.stock", "protected").status_code == 201
    assert put(service, "elsewhere", "none").status_code == 201


def test_clearance_and_classification_fall_by_two(service: Running, bob: httpx.Client) -> None:
    """Found by review: either fell by one person."""
    put(service, "a", "protected", classification="restricted", authorization_level=90)
    lower = put(service, "a", "protected", classification="restricted", authorization_level=10)
    assert (lower.status_code, lower.json()["weakens"]) == (202, ["a: authorization level 90 to 10"])
    public = put(service, "a", "protected", classification="public", authorization_level=90)
    assert (public.status_code, public.json()["weakens"]) == (202, ["a: restricted to public"])
    assert decide(bob, public.json()["id"], "approve").status_code == 200
    assert decide(bob, lower.json()["id"], "approve").status_code == 409, "asked for before the other one"
    assert (
        put(service, "a", "protected", classification="restricted", authorization_level=91).status_code == 200
    )
    levels = service.reader.get("/v1/classification-levels").json()
    levels["restricted"]["authorization_level"] = 100
    assert service.admin.put("/v1/classification-levels", json=levels).status_code == 200
    levels["restricted"]["authorization_level"] = 0
    assert service.admin.put("/v1/classification-levels", json=levels).status_code == 202


def test_a_change_is_refused_and_taken_back(service: Running, bob: httpx.Client) -> None:
    for who in (bob, service.admin):
        put(service, "a", "protected")
        number = put(service, "a", "none").json()["id"]
        assert decide(who, number, "refuse").json()["status"] == "refused"
        again = decide(bob, number, "approve")
        assert (again.status_code, again.json()["detail"]) == (
            409,
            f"change {number} was refused already",
        )
    assert encryption(service, "a") == "protected"
    assert waiting(service) == []
    status = [each["status"] for each in service.reader.get("/v1/policy-changes").json()["items"]]
    assert status == ["refused", "refused"]


def test_the_same_request_again_is_one(service: Running, bob: httpx.Client) -> None:
    put(service, "a", "protected")
    first = put(service, "a", "none").json()
    revision = service.database.revision()
    assert put(service, "a", "none").json() == first
    body = {"path": "a", "data_type": "string", "encryption": "none"}
    assert bob.put("/v1/attributes/a", json=body).json() == first, "asking for it is not approving it"
    assert service.database.revision() == revision
    assert waiting(service) == [first]


def test_what_was_edited_since_is_asked_for_anew(service: Running, bob: httpx.Client) -> None:
    put(service, "a", "protected")
    number = put(service, "a", "none").json()["id"]
    put(service, "a", "protected", description="edited")
    answer = decide(bob, number, "approve")
    assert answer.status_code == 409
    assert "refuse it and ask again" in answer.json()["detail"]
    assert encryption(service, "a") == "protected"


@pytest.mark.parametrize("path", ["a.ssn", "a.b.c"])
def test_what_would_open_more_than_was_shown_is_asked_for_anew(
    service: Running, bob: httpx.Client, path: str
) -> None:
    put(service, "a", "protected")
    first = put(service, "a", "none").json()
    patched(service, change(None, path=path))
    answer = decide(bob, first["id"], "approve")
    assert answer.status_code == 409
    assert f"({path}: protected to none); refuse it and ask again" in answer.json()["detail"]
    assert encryption(service, "a") == "protected"

    again = put(service, "a", "none").json()
    assert again["weakens"] == ["a: protected to none", f"{path}: protected to none"]
    assert decide(bob, again["id"], "approve").status_code == 200
    assert encryption(service, "a") == "none"


def test_what_opens_less_than_was_shown_is_approved(service: Running, bob: httpx.Client) -> None:
    put(service, "a", "protected")
    patched(service, change(None, path="a.b"))
    number = put(service, "a", "none").json()["id"]
    put(service, "a.b", "protected")
    assert decide(bob, number, "approve").status_code == 200
    assert (encryption(service, "a"), encryption(service, "a.b")) == ("none", "protected")


def test_what_events_showed_since_does_not_count(service: Running, bob: httpx.Client) -> None:
    put(service, "a", "protected")
    number = put(service, "a", "none").json()["id"]
    patched(service, change(None, path="a", data_type="integer"))
    assert decide(bob, number, "approve").status_code == 200
    found = service.reader.get("/v1/attributes/a").json()
    assert (found["encryption"], len(found["conflicts"])) == ("none", 1)


def test_an_exception_below_what_is_protected_weakens(service: Running, bob: httpx.Client) -> None:
    put(service, "a", "protected")
    patched(service, change(None, path="a.b"))
    answer = put(service, "a.b", "none")
    assert (answer.status_code, answer.json()["weakens"]) == (202, ["a.b: protected to none"])
    assert decide(bob, answer.json()["id"], "approve").status_code == 200
    assert put(service, "a.c", "none").status_code == 202, (
        "nobody has seen a.c yet, and all of a is protected"
    )


def test_to_open_what_others_inherit_names_them(service: Running) -> None:
    put(service, "a", "protected")
    patched(service, change(None, path="a.b"), change(None, path="a/b"))
    assert put(service, "a", "none").json()["weakens"] == ["a: protected to none", "a.b: protected to none"]


def test_what_a_leaf_protects_above_it_is_opened_with_it(service: Running) -> None:
    patched(service, change(None, path="a"))
    put(service, "a.b", "protected")
    assert put(service, "a.b", "none").json()["weakens"] == [
        "a: protected to none",
        "a.b: protected to none",
    ]


LEVELS = "/v1/classification-levels"
DEFAULTS = "/v1/discovery-defaults"


@pytest.mark.parametrize(
    ("url", "body", "weakens"),
    [
        (
            LEVELS,
            {"confidential": {"encryption": "none", "authorization_level": 50}},
            ["level confidential: protected to none"],
        ),
        (
            LEVELS,
            {"restricted": {"encryption": "searchable", "indexable": False, "authorization_level": 80}},
            ["level restricted: protected to searchable"],
        ),
        (DEFAULTS, {"encryption": "none"}, ["attributes that nobody declared: protected to none"]),
        (
            DEFAULTS,
            {"encryption": "protected", "detection": "propose"},
            ["detection: seal to propose"],
        ),
        (
            DEFAULTS,
            {"encryption": "protected", "value_keys": ["seen.by", "other"]},
            ["keys made of values below other: refused to allowed"],
        ),
    ],
)
def test_levels_and_defaults_too(
    service: Running, bob: httpx.Client, url: str, body: dict[str, Any], weakens: list[str]
) -> None:
    first = {"encryption": "protected", "value_keys": ["seen"]}
    assert service.admin.put(DEFAULTS, json=first).status_code == 200
    put(service, "a", "protected")
    before = service.reader.get(url).json()
    answer = service.admin.put(url, json=body)
    assert (answer.status_code, answer.json()["weakens"]) == (202, weakens)
    assert service.reader.get(url).json() == before
    assert decide(bob, answer.json()["id"], "approve").status_code == 200
    assert service.reader.get(url).json() == answer.json()["document"]


def test_what_the_catalogue_does_not_know_has_the_level_of_the_defaults(
    service: Running, bob: httpx.Client
) -> None:
    """Found by review: one person declared a purged path, and what was stored of it was for everybody."""
    service.admin.put(DEFAULTS, json={"authorization_level": 50}).raise_for_status()
    stated = {"data_type": "string", "authorization_level": 50}
    for path in ("crm.first", "crm.second"):
        body = stated | {"path": path}
        assert service.admin.put(f"/v1/attributes/{path}", json=body).status_code == 201
    body = stated | {"path": "crm.purged", "authorization_level": 10}
    asked = service.admin.put("/v1/attributes/crm.purged", json=body)
    assert asked.status_code == 202, asked.text
    assert asked.json()["weakens"] == ["crm.purged: authorization level 50 to 10"]
    assert decide(bob, asked.json()["id"], "approve").status_code == 200


def test_an_empty_catalogue_is_set_up_by_one(service: Running) -> None:
    assert service.admin.put(DEFAULTS, json={"detection": "off"}).status_code == 200
    assert (
        service.admin.put(
            LEVELS, json={"confidential": {"encryption": "none", "authorization_level": 50}}
        ).status_code
        == 200
    )


def test_only_admins_decide_and_all_may_look(service: Running) -> None:
    put(service, "a", "protected")
    number = put(service, "a", "none").json()["id"]
    for caller in (service.pipeline, service.reader):
        assert decide(caller, number, "approve").status_code == 403
        assert caller.get(f"/v1/policy-changes/{number}").json()["status"] == "pending"
    assert decide(service.admin, 99, "approve").status_code == 404
    assert service.reader.get("/v1/policy-changes/99").status_code == 404


def test_of_two_decisions_at_once_one_counts(service: Running, bob: httpx.Client) -> None:
    put(service, "a", "protected")
    number = put(service, "a", "none").json()["id"]
    answers: list[int] = []

    def run(verdict: str) -> None:
        headers = {"Authorization": f"Bearer {BOB}"}
        answer = httpx.post(
            f"{service.url}/v1/policy-changes/{number}/{verdict}", json={}, headers=headers, timeout=30
        )
        answers.append(answer.status_code)

    threads = [threading.Thread(target=run, args=(each,)) for each in ("approve", "refuse", "approve")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [200, 409, 409]


def verdict(service: Running, path: str, said: str) -> httpx.Response:
    body = {"decision": said, "reason": "looked at it"}
    return service.admin.post(f"/v1/attributes/{path}/proposal", json=body)


def test_a_proposal_is_decided_by_one(service: Running) -> None:
    patched(service, change(path="yes"), change(path="no"), change(None, path="plain"))
    confirmed = verdict(service, "yes", "confirm").json()
    assert (confirmed["status"], confirmed["encryption"], confirmed["sealed_for_review"]) == (
        "active",
        "protected",
        False,
    )
    assert confirmed["classification"] == "confidential"
    refused = verdict(service, "no", "refuse").json()
    assert (refused["status"], refused["encryption"], refused["classification"]) == (
        "active",
        "none",
        "internal",
    )
    for path in ("yes", "plain"):
        assert verdict(service, path, "refuse").status_code == 409, "no proposal waits there"
    assert verdict(service, "unknown", "confirm").status_code == 404
    (last, *_) = service.reader.get("/v1/attributes/no/versions").json()["items"]
    assert (last["reason"], last["actor"]) == ("looked at it", "the admin")


def test_a_proposal_that_sealed_nothing_is_confirmed_as_its_level_says(service: Running) -> None:
    service.admin.put(DEFAULTS, json={"detection": "propose"})
    patched(service, change())
    assert encryption(service, "a.b") == "none"
    assert verdict(service, "a.b", "confirm").json()["encryption"] == "protected"


def test_to_refuse_a_proposal_where_an_admin_sealed_needs_two(service: Running, bob: httpx.Client) -> None:
    service.admin.put(DEFAULTS, json={"encryption": "protected"})
    patched(service, change())
    answer = verdict(service, "a.b", "refuse")
    assert answer.status_code == 202
    assert decide(bob, answer.json()["id"], "approve").status_code == 200
    assert encryption(service, "a.b") == "none"


def test_pages(service: Running) -> None:
    for number in range(3):
        put(service, f"a{number}", "protected")
        put(service, f"a{number}", "none")
    first = service.reader.get("/v1/policy-changes?limit=2").json()
    rest = service.reader.get(f"/v1/policy-changes?limit=2&cursor={first['next']}").json()
    assert [each["subject"] for each in (*first["items"], *rest["items"])] == ["a2", "a1", "a0"]
    assert rest["next"] is None


def test_the_interface_is_described(service: Running) -> None:
    described = service.nobody.get("/openapi.json").json()["paths"]
    assert {"/v1/policy-changes/{number}/approve", "/v1/attributes/{path}/proposal"} <= described.keys()
    assert "202" in described["/v1/attributes/{path}"]["put"]["responses"]
