"""Commands in a folder that is not idgraph's, and credentials that are none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from idgraph.app import metadata_access
from idgraph.app.cli import app
from idgraph.app.settings.document import Settings
from idgraph.model.errors import ConfigError
from sinks.credentials import secret
from sinks.http.decryptor import DecryptionService, HttpDecryptor
from tests.app.conftest import CommandLine


@pytest.mark.parametrize(
    "words",
    [
        "lookup user_id:7",
        "search lamp",
        "export",
        "explain user_id:7",
        "dead-letters list",
        "specs list",
        "attributes search lamp",
        "rules show",
        "tokens list",
        "tokens add kim --role viewer",
        "users list",
        "jobs list",
        "flows show",
        "keys list",
        "audit verify",
        "run",
        "reconcile",
        "reindex",
        "seal",
        "serve profiles",
    ],
)
def test_in_another_folder_a_command_says_so_and_leaves_nothing(words: str, idgraph: CommandLine) -> None:
    (idgraph.folder / "idgraph.toml").unlink()
    done = CliRunner().invoke(app, words.split())
    assert done.exit_code == 2
    assert "idgraph.toml" in done.stderr
    assert "--config" in done.stderr
    assert "keys init" not in done.stderr
    assert list(idgraph.folder.iterdir()) == []


def test_without_a_configuration_a_folder_with_a_store_is_one(filled: CommandLine) -> None:
    (filled.folder / "idgraph.toml").unlink()
    assert CliRunner().invoke(app, ["dead-letters", "list"]).exit_code == 0
    (filled.folder / ".idgraph" / "keyring.json").unlink()
    assert "keyring" in CliRunner().invoke(app, ["dead-letters", "list"]).stderr


@pytest.mark.parametrize(
    "content", [b"", b"\n", b" \t\r\n", b"two words", b"one\ntwo", b"nul\0", b"\xff\xfe", "ключ".encode()]
)
def test_a_token_file_that_holds_no_token_is_no_outage(content: bytes, served: CommandLine) -> None:
    settings = served.settings()
    for file, words in (
        (settings.token_file(), ["specs", "list"]),
        (settings.flow_token_file(), ["run", "--until-done"]),
        (settings.profiles_token_file(), ["serve", "profiles", "--port", "0"]),
    ):
        kept = file.read_bytes()
        file.write_bytes(content)
        done = served(*words)
        file.write_bytes(kept)
        assert done.exit_code == 5, done.stderr
        assert str(file) in done.stderr
        assert "tokens add" in done.stderr


def test_a_token_of_blanks_in_the_environment_is_none(
    served: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IDGRAPH_METADATA__TOKEN", "  ")
    done = served("specs", "list")
    assert done.exit_code == 5
    assert "IDGRAPH_METADATA__TOKEN" in done.stderr
    monkeypatch.setenv("IDGRAPH_METADATA__TOKEN", "")
    assert served("specs", "list").exit_code == 0


def test_a_folder_in_place_of_a_token_file(served: CommandLine) -> None:
    file = served.settings().token_file()
    file.unlink()
    file.mkdir()
    done = served("specs", "list")
    assert done.exit_code == 2
    assert str(file) in done.stderr


@pytest.mark.parametrize("content", ["", "  \n"])
def test_an_empty_secret_of_another_server_is_refused_when_it_is_opened(content: str, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text(content)
    with pytest.raises(ConfigError, match="secret: is empty"):
        secret("IDGRAPH_NO_SUCH_VARIABLE", str(file))
    with pytest.raises(ConfigError, match="secret: is empty"):
        HttpDecryptor(DecryptionService("http://127.0.0.1:9", 1, 1.0, 0, 1000, file))


def test_a_service_without_a_token_of_its_own_never_starts(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("\n")
    stated = {"metadata": {"flow_token_file": str(file)}}
    with pytest.raises(Exception, match="empty"):
        metadata_access.flow_token(Settings.model_validate(stated))


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "idgraph", "--version"], capture_output=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith(b"idgraph ")
