"""The contact search: typing errors, protected values as a whole, and nothing by what the caller does not see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from idgraph.model.attributes import EncryptionLevel
from sinks.tantivy.index import TantivyProfileIndex
from tests.profile_service.api.conftest import Served, caller, problem, served_here
from tests.retail import UNDETECTED, Pipeline, attribute, order, snapshot
from transforms.privacy.protected_names import TombstoneNames

PATHS = {
    "name": ["identity.name.first", "identity.name.last"],
    "email": ["identity.email"],
    "postcode": ["address.shipping.postalCode"],
}
PEOPLE = [("Johanna", "Johnson", "10115"), ("Johann", "Jonsson", "10117"), ("Mia", "Smith", "90210")]


@pytest.fixture
def agents(tmp_path: Path) -> Iterator[Served]:
    declared = [
        attribute("identity.email", encryption=EncryptionLevel.SEARCHABLE),
        attribute("identity.name.first", authorization_level=50),
        attribute("identity.name.last", authorization_level=50),
    ]
    known = snapshot(declared=declared, defaults=UNDETECTED)
    pipeline = Pipeline(tmp_path, snapshot=known)
    pipeline.index = TantivyProfileIndex(tmp_path / "index", TombstoneNames(pipeline.provider))
    for number, (first, last, code) in enumerate(PEOPLE):
        customer = {"email": f"p{number}@example.com", "name": {"first": first, "last": last}}
        shipping = {"line1": "1 Main St", "city": "Springfield", "country": "US", "postal_code": code}
        pipeline.process([order(number, number + 1, customer=customer, shipping=shipping)])
    with served_here(pipeline, [caller("agent", 50), caller("clerk", 0)], contact_paths=PATHS) as found:
        yield found
    pipeline.index.close()


def ask(client: httpx.Client, **asked: Any) -> list[dict[str, Any]]:
    answer = client.post("/v1/contacts", json=asked)
    assert answer.status_code == 200, answer.text
    return list(answer.json()["items"])


def first_names(found: list[dict[str, Any]]) -> list[str]:
    return [each["profile"]["attributes"]["identity"]["name"]["first"] for each in found]


def test_the_most_similar_come_first(agents: Served) -> None:
    agent = agents.client("agent")
    found = ask(agent, name="johana jonson")
    assert first_names(found) == ["Johanna", "Johann"]
    assert found[0]["score"] > found[1]["score"] > 0.5
    assert sorted(first_names(ask(agent, name="Jonhson"))) == ["Johann", "Johanna"]
    assert first_names(ask(agent, name="johann", postcode="10117"))[0] == "Johann"
    assert first_names(ask(agent, postcode="90211")) == ["Mia"]
    assert ask(agent, name="Nobody Atall") == []
    assert len(ask(agent, name="johana jonson", limit=1)) == 1


def test_a_protected_value_is_found_as_a_whole_and_stays_masked(agents: Served) -> None:
    agent = agents.client("agent")
    (found,) = ask(agent, email=" P2@Example.com ")
    assert found["matched"] == ["email"]
    assert found["score"] == 1
    assert found["profile"]["attributes"]["identity"]["email"] == {"$protected": True}
    assert ask(agent, email="p9@example.com") == []
    (shown,) = ask(agent, email="p2@example.com", fields=["address"])
    assert set(shown["profile"]["attributes"]) == {"address"}


def test_nobody_is_found_by_what_is_hidden(agents: Served) -> None:
    clerk = agents.client("clerk")
    assert ask(clerk, name="Johnson") == []
    found = ask(clerk, name="Johnson", postcode="10115")
    assert {tuple(each["matched"]) for each in found} == {("postcode",)}
    assert "name" not in found[0]["profile"]["attributes"]["identity"]


def test_what_cannot_be_asked(agents: Served) -> None:
    agent = agents.client("agent")
    problem(agent.post("/v1/contacts", json={}), 400)
    problem(agent.post("/v1/contacts", json={"name": " "}), 400)
    problem(agent.post("/v1/contacts", json={"name": "x" * 301}), 422)
    problem(agent.post("/v1/contacts", json={"street": "Main"}), 422)
    assert ask(agent, name='") OR *') == []


def test_a_service_that_knows_no_attributes_of_contacts_says_so(served: Served) -> None:
    answer = problem(served.client("everything").post("/v1/contacts", json={"name": "Johanna"}), 422)
    assert "contact_attributes" in answer["detail"]
