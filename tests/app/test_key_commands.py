"""`idgraph keys rotate`, `list` and `retire` on a store that real events filled."""

from __future__ import annotations

import base64
import json
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from pyspark import cloudpickle

from idgraph.app import wiring
from sinks.sqlite.data_keys import SqliteDataKeys
from tests.app.conftest import CommandLine
from tests.app.processes import on_a_terminal, program

ROOT = Path(__file__).parents[2]


def revealed(idgraph: CommandLine) -> str:
    result = idgraph("export", "--reveal", "--provenance")
    assert result.exit_code == 0
    assert '"$protected"' not in result.stdout
    return result.stdout


def test_a_key_is_rotated_and_retired_and_every_value_stays_readable(filled: CommandLine) -> None:
    before = revealed(filled)
    (only,) = filled.json("keys", "list", "--json")
    keys = only["data_keys"]
    assert (only["version"], only["status"]) == (1, "current")
    assert keys > 10
    result = filled("keys", "rotate")
    assert result.exit_code == 0
    assert result.stdout == f"version 2 is current; {keys} data keys rewrapped\n"
    assert result.stderr == f"the rotation to version 2 begins: {keys} data keys\n"
    assert revealed(filled) == before
    assert filled("keys", "retire", "1").stdout == "version 1 is retired\n"
    assert revealed(filled) == before
    old, new = filled.json("keys", "list", "--json")
    assert (old["status"], old["data_keys"]) == ("retired", 0)
    assert old["retired"] >= old["created"]
    assert (new["version"], new["status"], new["data_keys"]) == (2, "current", keys)
    table = [line.split() for line in filled("keys", "list").stdout.splitlines()]
    assert table[0] == ["version", "status", "created", "retired", "data_keys"]
    assert [row[:2] for row in table[1:]] == [["1", "retired"], ["2", "current"]]
    assert table[2][-1] == str(keys)
    assert filled("keys", "retire", "1").exit_code == 0, "twice is no error"


def test_a_process_with_keys_leaves_no_core_file(filled: CommandLine) -> None:
    code = (
        "import resource, sys; from idgraph.app.cli import app; app(sys.argv[1:], standalone_mode=False); "
        "print(resource.getrlimit(resource.RLIMIT_CORE)[0])"
    )
    words = ["-c", str(filled.folder / "idgraph.toml"), "keys", "list"]
    unlimited = ["sh", "-c", 'ulimit -S -c "$(ulimit -H -c)"; exec "$@"', "sh", sys.executable, "-c", code]
    done = subprocess.run([*unlimited, *words], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "0"


def test_what_uses_a_version_is_reported(filled: CommandLine) -> None:
    assert filled("keys", "add").exit_code == 0
    result = filled("keys", "retire", "1")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "error: key version 1 is in use: it wraps" in result.stderr
    assert "(email:~" in result.stderr
    assert "@" not in result.stderr, "protected identifiers are hashed, as the store has them"
    reported = filled("keys", "retire", "1", "--json")
    assert reported.exit_code == 1
    answer = json.loads(reported.stdout)
    assert (answer["version"], answer["status"]) == (1, "retiring")
    assert answer["data_keys"] > len(answer["fragments"]) == 5


def test_what_is_not_there_or_current_is_not_retired(filled: CommandLine) -> None:
    result = filled("keys", "retire", "7")
    assert (result.exit_code, result.stdout) == (3, "")
    assert "no key-encryption key of version 7" in result.stderr
    current = filled("keys", "retire", "1")
    assert (current.exit_code, current.stdout) == (1, "")
    assert "version 1 is the current one" in current.stderr
    assert filled("keys", "retire", "one").exit_code == 2


def test_a_rotation_reports_scripts_what_it_did(filled: CommandLine) -> None:
    (reported,) = filled.json("keys", "rotate", "--json")
    assert reported["rewrapped"] > 10
    assert reported == {
        "version": 2,
        "resumed": False,
        "rewrapped": reported["rewrapped"],
        "unusable": 0,
        "fragments": [],
    }


def test_keys_that_cannot_be_unwrapped_are_reported(filled: CommandLine) -> None:
    with closing(SqliteDataKeys(filled.settings().directory / "data-keys.db")) as store:
        ((name, key),) = store.wrapped_by(1, "", 1).items()
        store.replace({name: (key, key._replace(wrapped=bytes(len(key.wrapped))))})
    result = filled("keys", "rotate", "--json")
    assert result.exit_code == 1
    reported = json.loads(result.stdout)
    assert (reported["unusable"], reported["fragments"]) == (1, [name])
    assert f"1 data key cannot be unwrapped and stay unchanged: {name}" in result.stderr


@pytest.mark.parametrize("word", ["rotate", "add"])
def test_no_version_is_made_under_an_older_keyring(filled: CommandLine, word: str) -> None:
    """Found by use: it had the number of the one that was missing, and nothing reported the older keyring any more."""
    with closing(SqliteDataKeys(filled.settings().directory / "data-keys.db")) as store:
        ((name, key),) = store.wrapped_by(1, "", 1).items()
        store.replace({name: (key, key._replace(kek_version=5))})
    listed = filled.json("keys", "list", "--json")
    assert listed[-1] == {"version": 5, "status": "missing", "data_keys": 1}
    result = filled("keys", word)
    assert (result.exit_code, result.stdout) == (1, "")
    assert f"never had key version 5, by which 1 data key is wrapped ({name})" in result.stderr
    assert filled.json("keys", "list", "--json") == listed


@pytest.mark.parametrize("words", [("rotate",), ("list",), ("retire", "1"), ("add",)])
def test_lost_data_keys_do_not_count_as_unused(filled: CommandLine, words: tuple[str, ...]) -> None:
    keys = filled.settings().directory / "data-keys.db"
    assert filled("keys", "add").exit_code == 0
    keys.unlink()
    result = filled("keys", *words)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "data-keys.db is missing" in result.stderr
    assert not keys.exists()


def test_a_killed_rotation_goes_on_at_the_next_run(filled: CommandLine) -> None:
    before = revealed(filled)
    (only,) = filled.json("keys", "list", "--json")
    process = subprocess.Popen(
        program(filled, "keys", "rotate", "--rate", "1"), cwd=ROOT, stderr=subprocess.PIPE
    )
    with wiring.opened_keys(filled.settings()) as (_, store):
        deadline = time.monotonic() + 60
        while not store.counts().get(2):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        left = store.counts()[1]
    assert 0 < left < only["data_keys"]
    assert revealed(filled) == before
    result = filled("keys", "rotate")
    assert f"the rotation to version 2 resumes: {left} data keys" in result.stderr
    assert result.stdout == f"version 2 is current; {left} data keys rewrapped\n"
    assert revealed(filled) == before


def test_an_interrupted_rotation_says_so(filled: CommandLine) -> None:
    process = subprocess.Popen(
        program(filled, "keys", "rotate", "--rate", "1"), cwd=ROOT, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    assert "begins" in process.stderr.readline()
    process.send_signal(signal.SIGINT)
    assert "interrupted" in process.communicate(timeout=60)[1]
    assert process.returncode == 130


def test_a_terminal_shows_a_bar(filled: CommandLine) -> None:
    screen, said = on_a_terminal(program(filled, "keys", "rotate"))
    assert "version 2 is current" in said
    assert "━".encode() in screen


def test_what_workers_are_reported_holds_no_key(filled: CommandLine) -> None:
    settings = filled.settings()
    sent = cloudpickle.dumps(wiring.worker_plan(settings))
    assert str(settings.keyring_file()).encode() in sent, "where the keyring is, and no more"
    keyring = json.loads(settings.keyring_file().read_bytes())
    for secret in (keyring["root"], keyring["keys"][0]["key"]):
        assert secret.encode() not in sent
        assert base64.b64decode(secret) not in sent
