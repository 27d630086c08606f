"""`data-keys.db` lost while the profiles it protects are still there."""

from __future__ import annotations

import pytest

from app import wiring
from merge.store import FragmentWrite
from tests.app.conftest import CommandLine
from tests.retail import UNDETECTED, Pipeline, durable_keys, order, snapshot

COMMANDS = [
    ["lookup", "--reveal", "user_id:4493"],
    ["search"],
    ["export"],
    ["dead-letters", "replay", "--all"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_lost_data_keys_are_told_and_never_made_anew(words: list[str], filled: CommandLine) -> None:
    keys = filled.settings().directory / "data-keys.db"
    kept = keys.read_bytes()
    keys.unlink()
    result = filled(*words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{keys} is missing" in result.stderr
    assert "gone for good" in result.stderr
    assert not keys.exists()
    keys.write_bytes(kept)
    assert "is missing" not in filled(*words).stderr


def test_who_gives_the_values_up_goes_on_with_the_others(filled: CommandLine) -> None:
    keys = filled.settings().directory / "data-keys.db"
    keys.unlink()
    keys.touch()
    (profile,) = filled.json("lookup", "user_id:4493", "--reveal", "--json")
    assert profile["attributes"]["identity"]["email"] == {"$protected": "unreadable"}
    assert profile["attributes"]["demographics"]["age"] == 37


def test_a_damaged_fragment_among_them_hides_no_loss(filled: CommandLine) -> None:
    settings = filled.settings()
    with wiring.opened(settings) as resources:
        first = resources.store.scan(limit=1)[0]
        damaged = FragmentWrite(first.id, first.version, b"\x00", frozenset())
        assert resources.store.write([damaged]) == set()
    (settings.directory / "data-keys.db").unlink()
    result = filled("lookup", "user_id:4493")
    assert result.exit_code == 1
    assert "data-keys.db is missing" in result.stderr


def test_profiles_without_protected_values_need_no_keys(with_keys: CommandLine) -> None:
    settings = with_keys.settings()
    assert with_keys("export").exit_code == 0
    with wiring.opened(settings) as resources:
        keys = durable_keys(settings.directory)
        plain = Pipeline(
            settings.directory,
            keys,
            resources.store,
            resources.index,
            snapshot=snapshot(declared=[], defaults=UNDETECTED),
        )
        plain.process([order(1)])
        keys.close()
    file = settings.directory / "data-keys.db"
    file.unlink(missing_ok=True)
    assert with_keys("export").stdout.count("\n") == 1
    # Looked through once only.
    assert file.exists()
