"""Turning protection off at the command line: asked for by one person, approved by another."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import Result

from idgraph.model.callers import Role
from tests.app.conftest import CommandLine
from tests.app.discoveries import AN_EMAIL, discovered, send

As = Callable[..., Result]


@pytest.fixture
def bob(served: CommandLine, monkeypatch: pytest.MonkeyPatch) -> As:
    """Gives commands as a second person."""
    token = served("tokens", "add", "bob", "--role", "admin").stdout.strip()

    def command(*words: str) -> Result:
        with monkeypatch.context() as only_here:
            only_here.setenv("IDGRAPH_METADATA__TOKEN", token)
            return served(*words)

    return command


def apply(idgraph: CommandLine, *stated: dict[str, Any]) -> Result:
    file: Path = idgraph.folder / "attributes.json"
    file.write_text(json.dumps([{"data_type": "string", **each} for each in stated]))
    return idgraph("attributes", "apply", file, "--reason", "the ticket")


def encryption(idgraph: CommandLine, path: str) -> str:
    return str(json.loads(idgraph("attributes", "show", path).stdout)["encryption"])


def test_an_attribute_is_opened_by_two(served: CommandLine, bob: As) -> None:
    apply(served, {"path": "a", "encryption": "protected"})
    result = apply(served, {"path": "a", "encryption": "none"}, {"path": "b"})
    assert (result.exit_code, result.stdout) == (1, "1 attribute applied\n")
    assert result.stderr == (
        "a: weakens protection (a: protected to none), so it waits for a second person: "
        "`idgraph attributes approve 1`\n"
    )
    assert encryption(served, "a") == "protected"
    (listed,) = served.json("attributes", "changes", "--status", "pending", "--json")
    assert (listed["id"], listed["requested"]["reason"]) == (1, "the ticket")

    own = served("attributes", "approve", "1")
    assert (own.exit_code, own.stdout) == (1, "")
    assert "a second person approves it" in own.stderr
    done = bob("attributes", "approve", "1", "--reason", "seen")
    assert (done.exit_code, done.stdout) == (0, "change 1 is in force: a: protected to none\n")
    assert encryption(served, "a") == "none"
    assert served("attributes", "approve", "1").exit_code == 1
    assert served("attributes", "approve", "7").exit_code == 3
    table = served("attributes", "changes").stdout
    assert "a: protected to none" in table
    assert "bob" in table


def test_a_change_is_taken_back(served: CommandLine) -> None:
    apply(served, {"path": "a", "encryption": "protected"})
    apply(served, {"path": "a", "encryption": "none"})
    assert served("attributes", "refuse", "1").stdout == "change 1 is refused\n"
    assert served.json("attributes", "changes", "--status", "pending", "--json") == []
    assert encryption(served, "a") == "protected"


def test_what_a_detector_proposed_is_decided_by_one(served: CommandLine) -> None:
    send(served, discovered("yes", AN_EMAIL), discovered("no", AN_EMAIL))
    assert served("attributes", "confirm", "yes", "--reason", "it is").stdout == (
        "yes: active, confidential, encryption protected\n"
    )
    assert served("attributes", "dismiss", "no").stdout == "no: active, internal, encryption none\n"
    for words in (("confirm", "yes"), ("dismiss", "no")):
        again = served("attributes", *words)
        assert again.exit_code == 1
        assert "no proposal waits" in again.stderr
    assert served("attributes", "confirm", "unknown").exit_code == 3


def test_tokens_are_made_listed_and_revoked(served: CommandLine) -> None:
    made = served("tokens", "add", "carol", "--role", "reader", "--days", "2")
    assert made.exit_code == 0
    assert len(made.stdout.strip()) > 20
    listed = {each["name"]: each for each in served.json("tokens", "list", "--json")}
    assert listed.keys() == {"first-admin", "flow", "profile-service", "carol"}
    assert listed["carol"]["role"] == "reader"
    assert listed["carol"]["expires"] is not None
    shown = served("tokens", "list").stdout
    assert "carol" in shown
    assert made.stdout.strip() not in shown
    assert served("tokens", "add", "carol", "--role", "viewer").exit_code == 1, "the name is in use"
    before = len(served.json("tokens", "list", "--json"))
    unsaid = served("tokens", "add", "erin")
    assert unsaid.exit_code == 2
    assert all(f" {role}: " in unsaid.stderr for role in Role)
    assert len(served.json("tokens", "list", "--json")) == before
    assert served("tokens", "add", "dan", "--role", "king").exit_code == 2
    assert served("tokens", "revoke", "carol").stdout == "the token of carol is revoked\n"
    assert served("tokens", "revoke", "carol").exit_code == 3
