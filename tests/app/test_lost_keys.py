"""A part of an installation lost while what belongs to it is still there: the profiles, their data keys, the keyring."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from shutil import rmtree

import pytest

from idgraph.app import wiring
from idgraph.model.store import NEW, FragmentWrite
from merge.fragments import FragmentState
from sinks.keyring.provider import KeyringFile
from sinks.sqlite.data_keys import SqliteDataKeys
from tests.app.conftest import CommandLine
from tests.retail import UNDETECTED, Pipeline, durable_keys, order, snapshot

pytestmark = pytest.mark.slow


COMMANDS = [
    ["lookup", "--reveal", "user_id:4493"],
    ["search"],
    ["export"],
    ["dead-letters", "replay", "--all"],
]


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_lost_data_keys_are_reported_and_never_made_anew(words: list[str], filled: CommandLine) -> None:
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


@pytest.mark.parametrize(
    "words",
    [
        ["erase", "user_id:4493", "--yes"],
        ["dead-letters", "replay", "--all"],
        ["seal"],
        ["keys", "add"],
        ["keys", "rotate"],
        ["reindex"],
        ["reconcile"],
        ["lookup", "email:nobody@example.com"],
        ["search", "identity.email=nobody@example.com"],
    ],
    ids=" ".join,
)
def test_nothing_is_done_under_another_keyring(words: list[str], filled: CommandLine) -> None:
    """Found by use: a person became two, an erasure's tombstone held under the other keyring's names only, values were
    sealed that the own keyring could not open, and the answer about a person who was there was nobody."""
    keyring, keys = filled.settings().keyring_file(), filled.settings().directory / "data-keys.db"
    own = keyring.read_bytes()
    other = _another_keyring(filled)
    before = keys.read_bytes()
    result = filled(*words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "it is not the one that they were made under" in result.stderr
    assert (keyring.read_bytes(), keys.read_bytes()) == (other, before)
    shown = filled("lookup", "user_id:4493", "--reveal")
    assert (shown.exit_code, shown.stdout) == (1, "")
    assert "restore the keyring of these profiles" in shown.stderr
    assert "it is not the one that they were made under" in filled("audit", "verify").stderr
    assert "opens none of" in filled("keys", "adopt", "--yes").stderr
    keyring.write_bytes(own)
    assert "cannot be opened" not in filled("lookup", "user_id:4493", "--reveal").stderr
    assert "not the one" not in filled(*words).stderr


def test_data_keys_are_tried_wherever_they_stand(filled: CommandLine) -> None:
    """Found by use: the first twenty profiles had none, so that any keyring was taken for the own one."""
    state = FragmentState().encode()
    with wiring.opened(filled.settings()) as resources:
        first = [FragmentWrite(f"a:{number}", NEW, state, frozenset()) for number in range(30)]
        assert resources.store.write(first) == set()
    _another_keyring(filled)
    for words in (["seal"], ["keys", "adopt", "--yes"]):
        refused = filled(*words)
        assert (refused.exit_code, refused.stdout) == (1, "")
        assert "opens none of" in refused.stderr


def test_without_data_keys_the_keyring_is_known_by_its_mark(with_keys: CommandLine) -> None:
    """Found by use: a person who was erased came back in a flow under a keyring that was rebuilt."""
    settings = with_keys.settings()
    keyring = settings.keyring_file()
    with wiring.opened(settings) as resources:
        keys = durable_keys(settings.directory)
        known = snapshot(declared=[], defaults=UNDETECTED)
        pipeline = Pipeline(settings.directory, keys, resources.store, resources.index, snapshot=known)
        pipeline.process([order(1)])
        (person,) = [each.id for each in resources.store.scan(limit=2)]
        pipeline.data_keys.close()
        keys.close()
    assert with_keys("erase", "--fragment", person, "--yes").exit_code == 0
    own = keyring.read_bytes()
    _another_keyring(with_keys)
    # Only the tombstone is left, and is what would not be found.
    refused = with_keys("erase", "--fragment", "user_id:1", "--yes")
    assert (refused.exit_code, refused.stdout) == (1, "")
    assert "not the one that these profiles were made under" in refused.stderr
    keyring.write_bytes(own)
    assert with_keys("erase", "--fragment", "user_id:1", "--yes").exit_code == 0
    _another_keyring(with_keys)
    assert with_keys("erase", "--fragment", "user_id:2", "--yes").exit_code == 1
    assert with_keys("keys", "adopt", given=b"n\n").exit_code == 1
    assert with_keys("erase", "--fragment", "user_id:2", "--yes").exit_code == 1
    assert with_keys("keys", "adopt", "--yes").exit_code == 0
    assert with_keys("erase", "--fragment", "user_id:2", "--yes").exit_code == 0


def test_an_empty_store_takes_any_keyring(with_keys: CommandLine) -> None:
    with wiring.opened(with_keys.settings()) as resources:
        wiring.require_own_keyring(with_keys.settings(), resources)
    with_keys.settings().keyring_file().unlink()
    assert "a new one begins" in with_keys("keys", "init").stdout
    assert with_keys("erase", "--fragment", "user_id:1", "--yes").exit_code == 0


def _another_keyring(idgraph: CommandLine) -> bytes:
    keyring = idgraph.settings().keyring_file()
    keyring.unlink()
    KeyringFile.create(keyring)
    return keyring.read_bytes()


def test_one_damaged_data_key_is_not_another_keyring(filled: CommandLine) -> None:
    settings = filled.settings()
    with closing(SqliteDataKeys(settings.directory / "data-keys.db")) as store:
        ((name, key),) = store.wrapped_by(1, "", 1).items()
        store.replace({name: (key, key._replace(wrapped=bytes(len(key.wrapped))))})
    assert filled("erase", "user_id:4493", "--yes").exit_code == 0


def test_damaged_data_keys_of_a_noted_keyring_are_no_other_keyring(filled: CommandLine) -> None:
    """Found by review: where few persons have one, a damaged data key stopped flow, erasure and replay."""
    settings = filled.settings()
    with wiring.opened(settings) as resources:
        wiring.require_own_keyring(settings, resources)
    with closing(SqliteDataKeys(settings.directory / "data-keys.db")) as store:
        keys = store.some(1000)
        store.replace({name: (key, key._replace(wrapped=bytes(9))) for name, key in keys.items()})
    assert filled("erase", "user_id:4493", "--yes").exit_code == 0
    _another_keyring(filled)
    assert filled("erase", "user_id:4493", "--yes").exit_code == 1


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


READERS = [
    *COMMANDS,
    ["explain", "user_id:4493"],
    ["seal"],
    ["reindex"],
    ["reconcile"],
    ["keys", "rotate"],
    ["keys", "list"],
]


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_lost_profiles_are_reported_and_never_made_anew(words: list[str], filled: CommandLine) -> None:
    """Found by use: whatever ran first made an empty store, the flow took it for whole, and everybody was unknown."""
    profiles = filled.settings().directory / "profiles.db"
    kept = profiles.read_bytes()
    for file in profiles.parent.glob("profiles.db*"):
        file.unlink()
    result = filled(*words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"{profiles} is missing" in result.stderr
    assert "docs/operate.md" in result.stderr
    assert not profiles.exists()
    profiles.write_bytes(kept)
    assert "is missing" not in filled(*words).stderr


@pytest.mark.parametrize("left", ["checkpoint", "data-keys.db", "index"])
def test_each_part_that_is_left_shows_that_profiles_are_missing(left: str, filled: CommandLine) -> None:
    directory = filled.settings().directory
    commit = directory / "flows/shop/checkpoint/commits/0"
    commit.parent.mkdir(parents=True)
    commit.touch()
    for part, files in {
        "checkpoint": ["flows"],
        "data-keys.db": ["data-keys.db", "data-keys.db-wal", "data-keys.db-shm"],
        "index": ["index"],
        "": ["profiles.db", "profiles.db-wal", "profiles.db-shm"],
    }.items():
        for each in files:
            if part != left and (directory / each).exists():
                (rmtree if (directory / each).is_dir() else Path.unlink)(directory / each)
    result = filled("lookup", "user_id:4493")
    assert result.exit_code == 1
    assert "profiles.db is missing" in result.stderr
    # Who means it says so.
    (directory / "profiles.db").touch()
    assert filled("lookup", "user_id:4493").exit_code == 3


def test_a_new_folder_and_one_that_was_removed_are_fresh_starts(filled: CommandLine) -> None:
    directory = filled.settings().directory
    keyring = filled.settings().keyring_file()
    kept = keyring.read_bytes()
    rmtree(directory)
    keyring.parent.mkdir(parents=True, exist_ok=True)
    keyring.write_bytes(kept)
    keyring.chmod(0o600)
    for _ in range(2):
        assert filled("lookup", "user_id:4493").exit_code == 3
        assert filled("export").exit_code == 0


def test_a_keyring_that_is_lost_is_to_be_restored(filled: CommandLine) -> None:
    """Found by use: the message said to make one, which opens nothing of what is stored."""
    settings = filled.settings()
    keyring, keys = settings.keyring_file(), settings.directory / "data-keys.db"
    kept = keyring.read_bytes()
    keyring.unlink()
    for words in (["lookup", "user_id:4493"], ["export"], ["keys", "init"]):
        refused = filled(*words)
        assert (refused.exit_code, refused.stdout) == (2, "")
        assert "restore the keyring" in refused.stderr
        assert not keyring.exists()
    keyring.write_bytes(kept)
    keyring.chmod(0o600)
    assert filled("lookup", "user_id:4493").exit_code == 0
    # Given up, as the documentation says.
    keyring.unlink()
    for file in settings.directory.glob("data-keys.db*"):
        file.unlink()
    keys.touch()
    assert filled("keys", "init").exit_code == 0
