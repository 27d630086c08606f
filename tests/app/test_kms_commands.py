"""Commands over a keyring whose keys are in AWS KMS."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from idgraph.app.settings.document import load
from idgraph.model.errors import ConfigError
from tests.app.conftest import CommandLine
from tests.servers.kms import REGION, Kms, running_kms

pytestmark = pytest.mark.slow


@pytest.fixture
def kms() -> Kms:
    return running_kms()


def in_kms(idgraph: CommandLine, kms: Kms) -> str:
    """The configuration with its keys in KMS; gives the KMS key."""
    key = kms.new_key()
    file = idgraph.folder / "idgraph.toml"
    keys = f'[keys]\nkind = "kms"\nkms_key = "{key.key}"\nregion = "{REGION}"\nendpoint = "{kms.url}"\nretry_seconds = 0.5\n'
    file.write_text(file.read_text() + "\n" + keys)
    return key.key


def test_an_installation_goes_over_to_kms_and_every_value_stays_readable(
    filled: CommandLine, kms: Kms
) -> None:
    before = filled("export", "--reveal").stdout
    assert '"$protected"' not in before
    keyring = filled.settings().keyring_file()
    bare = keyring.rename(filled.folder / "bare.json")
    refused = filled("keys", "init", "--from", bare)
    assert (refused.exit_code, refused.stderr) == (
        2,
        'error: [keys] kind is "file": to use another keyring file, name it as `keyring`\n',
    )
    in_kms(filled, kms)
    assert filled("export").exit_code == 2, "there is no keyring yet"
    assert filled("keys", "init", "--from", bare).exit_code == 0
    bare.unlink()
    assert filled("export", "--reveal").stdout == before
    assert filled("keys", "rotate").exit_code == 0
    assert filled("keys", "retire", "1").exit_code == 0
    assert filled("export", "--reveal").stdout == before
    assert [key["status"] for key in filled.json("keys", "list", "--json")] == ["retired", "current"]


def test_while_the_key_is_disabled_nothing_is_shown(filled: CommandLine, kms: Kms) -> None:
    bare = filled.settings().keyring_file().rename(filled.folder / "bare.json")
    key = in_kms(filled, kms)
    assert filled("keys", "init", "--from", bare).exit_code == 0
    kms.admin().disable_key(KeyId=key.rpartition("/")[2])
    for command in (["export", "--reveal"], ["lookup", "user_id:4493"], ["dead-letters", "replay", "--all"]):
        result = filled(*command)
        assert (result.exit_code, result.stdout) == (1, "")
        assert result.stderr == f"error: KMS key {key}: the key is disabled\n"


@pytest.mark.parametrize(
    ("text", "reported"),
    [
        ('kind = "kms"\n', "KMS needs a `kms_key` and its `region`"),
        ('kind = "kms"\nkms_key = "k"\n', "KMS needs a `kms_key` and its `region`"),
        ('kind = "vault"\n', "'file' or 'kms'"),
        ('endpoint = "x"\n', "not a URL of a service"),
        ('endpoint = "https://user:canary@kms"\n', "must not hold a user or a password"),
        ("cache_seconds = 0\n", "greater than 0"),
    ],
)
def test_what_cannot_be_used_is_refused_with_its_place(tmp_path: Path, text: str, reported: str) -> None:
    file = tmp_path / "idgraph.toml"
    file.write_text(f"[keys]\n{text}")
    with pytest.raises(ConfigError, match="keys") as caught:
        load(file)
    assert reported in str(caught.value)
    assert "canary" not in str(caught.value)


def test_what_is_missing_is_named(idgraph: CommandLine, kms: Kms, monkeypatch: pytest.MonkeyPatch) -> None:
    in_kms(idgraph, kms)
    monkeypatch.delitem(sys.modules, "sinks.kms", raising=False)
    monkeypatch.setitem(sys.modules, "boto3", None)
    monkeypatch.delitem(sys.modules, "sinks.aws_connection", raising=False)
    result = idgraph("keys", "init")
    assert result.exit_code == 2
    assert "pip install 'boto3>=" in result.stderr
