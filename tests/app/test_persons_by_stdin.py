"""A person in an argument is in the shell's history, in `ps` and in audit logs: `-` takes them from standard input."""

from __future__ import annotations

import json

import pytest

from tests.app.conftest import CommandLine
from tests.app.test_profile_commands import SEGMENT_USER

PERSON = f"user_id:{SEGMENT_USER}"


@pytest.mark.parametrize(
    "words",
    [
        ("lookup", "-", "--json"),
        ("explain", "-", "--format", "json"),
        ("links", "show", "-", "--json"),
        ("links", "history", "-", "--json"),
        ("erase", "-", "--dry-run", "--json"),
    ],
    ids=" ".join,
)
def test_a_person_by_standard_input(filled: CommandLine, words: tuple[str, ...]) -> None:
    named = filled(*(PERSON if word == "-" else word for word in words))
    piped = filled(*words, given=f"{PERSON}\n".encode())
    assert (piped.exit_code, piped.stdout) == (named.exit_code, named.stdout)
    assert named.exit_code == 0, named.output
    assert json.loads(piped.stdout.splitlines()[0])
    assert filled(*words[:-1], given=b"").exit_code == 2


def test_two_persons_by_standard_input(filled: CommandLine) -> None:
    piped = filled("explain", PERSON, "-", "-", given=f"{PERSON}\nuser_id:nobody\n".encode())
    assert (piped.exit_code, piped.stdout) == (3, "")
    assert "no profile has this identifier" in piped.stderr
