"""`idgraph triggers`, against a real metadata service."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.app.conftest import CommandLine

pytestmark = pytest.mark.slow

FILE: dict[str, list[dict[str, Any]]] = {
    "segments": [{"name": "adults", "q": ""}],
    "triggers": [
        {"name": "welcome", "when": {"segment": "adults"}, "webhook": "crm"},
        {"name": "minor", "when": {"q": "demographics.age<18"}, "webhook": "crm"},
    ],
}


def test_triggers_of_a_file_are_listed(served: CommandLine) -> None:
    file = served.folder / "behaviour.json"
    file.write_text(json.dumps(FILE))
    applied = served("behaviour", "apply", file)
    assert "trigger welcome: version 1" in applied.stdout, applied.output
    listed = served("triggers", "list").stdout
    assert "entered adults" in listed
    assert "becomes_true demographics.age<18" in listed
    assert [each["name"] for each in served.json("triggers", "list", "--json")] == ["minor", "welcome"]
    file.write_text(json.dumps({"triggers": [FILE["triggers"][0] | {"when": {"segment": "x"}}]}))
    refused = served("behaviour", "apply", file)
    assert refused.exit_code
    assert "/triggers/0/when/segment" in refused.output
    assert served.json("triggers", "ledger", "welcome", "--json") == []
    assert served("triggers", "ledger", "unknown").exit_code
