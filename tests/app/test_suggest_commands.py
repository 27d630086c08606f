"""`idgraph suggest`: a review list of the stored profiles, and decisions on it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.app.conftest import CommandLine
from tests.app.test_links_commands import filled_once, process, visit

pytestmark = pytest.mark.slow


__all__ = ["filled_once"]

BLOCK = ("--block", "demographics.age", "--block", "activity.platform", "--least-weight", "-99")
FIND = ("suggest", "find", "demographics.age", "activity.platform")


def test_a_suggestion_joins_nobody_until_it_is_accepted(filled: CommandLine, tmp_path: Path) -> None:
    process(filled.settings(), [visit(3, "user_id:91", "a@x.org"), visit(4, "user_id:92", "b@x.org")])
    wanted = {"user_id:91", "user_id:92"}
    found = [each for each in filled.json(*FIND, *BLOCK, "--json") if wanted == set(each["pair"])]
    assert [each["parts"].keys() for each in found] == [{"demographics.age", "activity.platform"}]
    assert [each["id"] for each in filled.json("lookup", "user_id:92", "--json")] == ["user_id:92"]
    assert filled("suggest", "refuse", *sorted(wanted), "--who", "jo").exit_code == 0
    review = tmp_path / "review.jsonl"
    assert filled(*FIND, *BLOCK, "--output", str(review)).exit_code == 0
    assert not [
        line for line in review.read_text().splitlines() if "user_id:92" in line and "user_id:91" in line
    ]
    review.write_text('{"pair": ["user_id:91", "user_id:92"], "weight": 3}\n')
    assert filled("suggest", "accept", "--file", str(review), "--who", "jo", "--why", "same").exit_code == 0
    assert [each["id"] for each in filled.json("lookup", "user_id:92", "--json")] == ["user_id:91"]


def test_protected_attributes_are_not_compared(filled: CommandLine) -> None:
    done = filled("suggest", "find", "identity.email", "demographics.age")
    assert done.exit_code != 0
    assert "protects identity.email" in done.output + done.stderr


def test_a_review_list_replaces_nothing_else(filled: CommandLine, tmp_path: Path) -> None:
    other = tmp_path / "keyring.json"
    other.write_text("{}")
    done = filled(*FIND, "--output", str(other))
    assert (done.exit_code, other.read_text()) == (2, "{}")
    assert "is not replaced" in done.stderr
