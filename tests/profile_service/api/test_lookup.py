"""Look-ups over HTTP: by any identifier, in any spelling that a URL has, masked and revealed."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from idgraph.model.identifiers import Identifier
from idgraph.web.audit import PURPOSE, AuditFile, AuditLog
from tests.profile_service.api.conftest import Served, identified, problem

pytestmark = pytest.mark.slow


USER = "user_id:4493"
EMAIL = "charles.wang@example.com"


def test_an_answer_is_what_the_export_has(served: Served, everything: httpx.Client) -> None:
    (profile,) = served.pipeline.reader().lookup(Identifier.parse(USER))
    assert everything.get(f"/v1/profiles/{USER}").json() == profile.canonical(provenance=False)
    asked = everything.get(f"/v1/profiles/{USER}?provenance=true").json()
    assert asked == profile.canonical(provenance=True)


@pytest.mark.parametrize("spelling", [EMAIL, EMAIL.upper(), quote(EMAIL, safe=""), f" {EMAIL}"])
def test_each_identifier_leads_to_the_profile(everything: httpx.Client, spelling: str) -> None:
    found = everything.get(f"/v1/profiles/email:{spelling}")
    assert found.status_code == 200, found.text
    assert found.json()["id"] == USER


@pytest.mark.parametrize(
    "value", ["a/b", "a+b", "a%2Fb", "a%b", "ä ö", "日本", "a?b#c", "a:b", "../a", "UPPER", "a\\b", "a&b=c"]
)
def test_every_text_can_be_asked_for(served: Served, everything: httpx.Client, value: str) -> None:
    served.pipeline.process([identified(value, f"{len(value)}@example.com")])
    found = everything.get(f"/v1/profiles/user_id:{quote(value, safe='')}")
    assert found.status_code == 200, found.text
    assert found.json()["id"] == f"user_id:{value}"
    (item,) = everything.post("/v1/profiles/lookup", json={"identifiers": [f"user_id:{value}"]}).json()[
        "items"
    ]
    assert item["profile"]["id"] == f"user_id:{value}"


def test_nobody_and_nonsense(everything: httpx.Client) -> None:
    problem(everything.get("/v1/profiles/email:nobody@example.com"), 404)
    problem(everything.get("/v1/profiles/nonsense"), 400)
    problem(everything.get("/v1/profiles/email:%ff"), 400)
    problem(everything.get("/v1/profiles"), 404)
    answer = everything.get("/v1/profiles/email:canary@example.com")
    assert "canary" not in answer.text


def test_parameters_that_ask_for_nothing_change_nothing(everything: httpx.Client, half: httpx.Client) -> None:
    for client in (everything, half):
        for asked in (f"email:{EMAIL}", USER, "email:nobody@example.com", "nonsense", "email:%ff"):
            plain = client.get(f"/v1/profiles/{asked}")
            stated = client.get(f"/v1/profiles/{asked}?provenance=false")
            assert (plain.status_code, plain.content) == (stated.status_code, stated.content)
            moving = ("date", "ratelimit-remaining", "ratelimit-reset")
            for header in moving:
                plain.headers.pop(header, None)
                stated.headers.pop(header, None)
            assert plain.headers == stated.headers
    tag = {"If-None-Match": everything.get(f"/v1/profiles/{USER}").headers["ETag"]}
    assert everything.get(f"/v1/profiles/{USER}", headers=tag).status_code == 304
    assert everything.head(f"/v1/profiles/{USER}").status_code == 200
    counted = everything.get("/metrics").text
    assert 'route="/v1/profiles/{identifier}",status="304"' in counted


def test_fields(everything: httpx.Client) -> None:
    whole = everything.get(f"/v1/profiles/{USER}").json()
    some = everything.get(f"/v1/profiles/{USER}?fields=demographics,identity.email,nothing").json()
    assert some["attributes"] == {
        "demographics": whole["attributes"]["demographics"],
        "identity": {"email": whole["attributes"]["identity"]["email"]},
    }
    assert everything.get(f"/v1/profiles/{USER}?fields=demo").json()["attributes"] == {}


def test_an_etag_spares_what_is_known(everything: httpx.Client) -> None:
    first = everything.get(f"/v1/profiles/{USER}")
    assert first.headers["Cache-Control"] == "no-store"
    assert first.headers["X-Content-Type-Options"] == "nosniff"
    tag = {"If-None-Match": first.headers["ETag"]}
    assert everything.get(f"/v1/profiles/{USER}", headers=tag).status_code == 304
    assert everything.get(f"/v1/profiles/{USER}?provenance=1", headers=tag).status_code == 200


def test_a_hundred_at_once(everything: httpx.Client) -> None:
    asked = [USER, "email:nobody@example.com", f"email:{EMAIL}"]
    items = everything.post("/v1/profiles/lookup", json={"identifiers": asked}).json()["items"]
    assert [item["identifier"] for item in items] == asked
    assert [item["profile"] and item["profile"]["id"] for item in items] == [USER, None, USER]
    problem(everything.post("/v1/profiles/lookup", json={"identifiers": [USER] * 101}), 422)
    problem(everything.post("/v1/profiles/lookup", json={"identifiers": ["nonsense"]}), 400)
    problem(everything.post("/v1/profiles/lookup", json={"identifiers": [], "field": 1}), 422)


def test_protected_values_are_revealed_for_a_purpose_that_is_recorded(served: Served) -> None:
    client = served.client("revealing")
    masked = client.get(f"/v1/profiles/{USER}").json()
    assert masked["attributes"]["identity"]["email"] == {"$protected": True}
    problem(client.get(f"/v1/profiles/{USER}?reveal=true"), 400)
    assert (
        AuditLog(AuditFile(served.audit), served.pipeline.provider.purpose_key(PURPOSE)).verify().entries == 0
    )
    opened = client.get(f"/v1/profiles/{USER}?reveal=true&purpose=ticket+7&fields=identity.email")
    assert opened.json()["attributes"]["identity"]["email"] == EMAIL
    report = AuditLog(AuditFile(served.audit), served.pipeline.provider.purpose_key(PURPOSE)).verify()
    assert (report.entries, report.broken_line) == (1, None)
    recorded = served.audit.read_text()
    assert "ticket 7" in recorded
    assert '"identity.email"' in recorded
    assert EMAIL not in recorded
    assert "4493" not in recorded
    problem(served.client("everything").get(f"/v1/profiles/{USER}?reveal=true&purpose=x"), 403)


def test_a_shared_identifier_belongs_to_nobody(served: Served, everything: httpx.Client) -> None:
    served.pipeline.process([identified(user, "shared@example.com") for user in ("shared1", "shared2")])
    problem(everything.get("/v1/profiles/email:shared@example.com"), 409)
    (item,) = everything.post(
        "/v1/profiles/lookup", json={"identifiers": ["email:shared@example.com"]}
    ).json()["items"]
    assert item == {"identifier": "email:shared@example.com", "profile": None, "is_shared": True}


def test_a_new_event_is_in_the_next_answer(served: Served, everything: httpx.Client) -> None:
    problem(everything.get("/v1/profiles/user_id:new"), 404)
    served.pipeline.process([identified("new", "new@example.com")])
    assert everything.get("/v1/profiles/user_id:new").status_code == 200


def test_a_refused_reveal_is_recorded(served: Served, everything: httpx.Client) -> None:
    """The caller and the purpose; nobody was found yet."""

    def recorded() -> list[dict[str, Any]]:
        lines = served.audit.read_text().splitlines() if served.audit.exists() else []
        return [entry for line in lines if (entry := json.loads(line))["action"] == "refused reveal"]

    before = len(recorded())
    asked: dict[str, Any] = {"reveal": True, "purpose": "curiosity"}
    problem(everything.get("/v1/profiles/user_id:4493", params=asked), 403)
    problem(everything.post("/v1/profiles/lookup", json={"identifiers": [], **asked}), 403)
    problem(everything.post("/v1/search", json=asked), 403)
    found = recorded()[before:]
    assert [(each["caller"], each["purpose"]) for each in found] == [("everything", "curiosity")] * 3


def test_identifiers_are_left_out_on_request(everything: httpx.Client) -> None:
    (found,) = everything.get("/v1/search?limit=1").json()["items"]
    assert found["identifiers"]
    body = {"identifiers": [found["id"]], "fields": ["activity"], "show_identifiers": False}
    shown = [
        everything.get(f"/v1/profiles/{found['id']}", params={"show_identifiers": False}).json(),
        everything.post("/v1/profiles/lookup", json=body).json()["items"][0]["profile"],
        everything.post("/v1/search", json={"limit": 1, "show_identifiers": False}).json()["items"][0],
    ]
    for each in shown:
        assert each["id"] == found["id"]
        assert each["identifiers"] == []


def test_a_look_up_by_a_hidden_type_is_in_the_log_alone(
    served: Served,
    everything: httpx.Client,
    half: httpx.Client,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Other tests may have done so before.
    monkeypatch.setattr(served.service, "_noted", set())
    names = ["user_id:4493", "user_id:nobody", "made_up:4493"]
    hidden, unknown, invented = (half.get(f"/v1/profiles/{name}") for name in names)
    assert problem(hidden, 404) == problem(unknown, 404) == problem(invented, 404)
    assert everything.get(f"/v1/profiles/{names[0]}").status_code == 200
    said = [each for each in caplog.messages if "clearance" in each]
    assert len(said) == 1
    assert "user_id" in said[0]
    assert "half" in said[0]
    assert "4493" not in said[0]
