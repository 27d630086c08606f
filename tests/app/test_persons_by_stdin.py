"""A person in an argument is in the shell's history, in `ps` and in audit logs: `-` takes them from standard input."""

from __future__ import annotations

import json
import re

import pytest

from tests.app.conftest import CommandLine
from tests.app.test_profile_commands import SEGMENT_USER

MADE_AT = re.compile(r'"made_at":"[^"]+"')
PERSON = f"user_id:{SEGMENT_USER}"


@pytest.mark.parametrize(
    "words",
    [
        ("lookup", "-", "--json"),
        ("explain", "-", "--format", "json"),
        ("links", "show", "-", "--json"),
        ("links", "history", "-", "--json"),
        ("erase", "-", "--dry-run", "--json"),
        ("access-request", "-"),
    ],
    ids=" ".join,
)
def test_a_person_by_standard_input(filled: CommandLine, words: tuple[str, ...]) -> None:
    named = filled(*(PERSON if word == "-" else word for word in words))
    piped = filled(*words, given=f"{PERSON}\n".encode())
    shown = [MADE_AT.sub("", each.stdout) for each in (piped, named)]
    assert (piped.exit_code, shown[0]) == (named.exit_code, shown[1])
    assert named.exit_code == 0, named.output
    assert json.loads(piped.stdout.splitlines()[0])
    assert filled(*words, given=b"").exit_code == 2


def test_two_persons_by_standard_input(filled: CommandLine) -> None:
    piped = filled("explain", PERSON, "-", "-", given=f"{PERSON}\nuser_id:nobody\n".encode())
    assert (piped.exit_code, piped.stdout) == (3, "")
    assert "no profile has this identifier" in piped.stderr
