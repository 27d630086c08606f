"""The keyring file: made once, for its owner only, changed under a lock, refused when damaged."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from idgraph.model import canonical
from idgraph.model.errors import KeyProviderError, UnknownKeyVersionError
from sinks.keyring import content as keyring_content
from sinks.keyring import file as keyring_file
from sinks.keyring import provider as keyring_module
from sinks.keyring.provider import KeyringFile
from tests.support.key_canary import shown
from tests.support.siv_reference import siv_encrypt
from transforms.privacy.keys import Secret

DATA_KEY = bytes(range(64))
ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "keyring.json"


@pytest.fixture
def keyring(path: Path) -> KeyringFile:
    return KeyringFile.create(path)


def test_a_new_keyring_is_for_its_owner_only(path: Path) -> None:
    before = os.umask(0)
    try:
        KeyringFile.create(path)
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert sorted(file.name for file in path.parent.iterdir()) == [".keyring.json.lock", "keyring.json"]


def test_a_keyring_is_never_replaced(keyring: KeyringFile, path: Path) -> None:
    content = path.read_bytes()
    with pytest.raises(KeyProviderError, match=r"keyring\.json exists; a keyring is never replaced"):
        KeyringFile.create(path)
    assert path.read_bytes() == content


def test_not_even_a_dangling_link_is_replaced(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere")
    with pytest.raises(KeyProviderError, match="exists"):
        KeyringFile.create(path)
    assert path.is_symlink()


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o601, 0o666])
def test_weak_permissions_are_refused_with_the_remedy(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key ring.json"
    KeyringFile.create(path)
    path.chmod(mode)
    with pytest.raises(KeyProviderError, match="others than its owner may use this keyring") as caught:
        KeyringFile(path)
    command = str(caught.value).split("run: ")[1]
    assert command == f"chmod 600 '{path}'"
    subprocess.run(command, shell=True, check=True)
    KeyringFile(path)


def test_a_missing_keyring_is_named(path: Path) -> None:
    with pytest.raises(KeyProviderError, match=f"^there is no keyring at {path}$"):
        KeyringFile(path)
    with pytest.raises(KeyProviderError, match="cannot be read: Is a directory"):
        KeyringFile(_private(path.parent))
    with pytest.raises(KeyProviderError, match="cannot be written: No such file or directory"):
        KeyringFile.create(path.parent / "nowhere" / "keyring.json")


def _private(directory: Path) -> Path:
    directory.chmod(0o700)
    return directory


def _edited(change: Callable[[dict[str, Any]], object], mend: bool = True) -> Callable[[bytes], bytes]:
    """Change the document; `mend` puts the right checksum under the wrong content."""

    def damage(content: bytes) -> bytes:
        document = json.loads(content)
        change(document)
        if mend:
            document.pop("checksum", None)
            document["checksum"] = keyring_content._checksum(document)
        return canonical.encode(document)

    return damage


def _altered(text: str) -> str:
    return ("B" if text[0] == "A" else "A") + text[1:]


DAMAGED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "empty": (lambda content: b"", "not JSON"),
    "interrupted": (lambda content: content[:-10], "not JSON"),
    "hostile number": (lambda content: b"1e99999999999999999999", "not JSON"),
    "another kind of file": (lambda content: b'{"a": 1}', "no idgraph keyring"),
    "a list": (lambda content: b"[]", "no idgraph keyring"),
    "later format": (_edited(lambda d: d.update(version=3)), "format version is not 2"),
    "no checksum": (_edited(lambda d: d.pop("checksum"), mend=False), "checksum does not match"),
    "altered key": (
        _edited(lambda d: d["keys"][0].update(key=_altered(d["keys"][0]["key"])), mend=False),
        "checksum does not match: restore it from a backup",
    ),
    "no root": (_edited(lambda d: d.pop("root")), "missing or malformed field"),
    "short root": (_edited(lambda d: d.update(root="AAAA")), "missing or malformed field"),
    "root no base64": (_edited(lambda d: d.update(root="?" * 88)), "missing or malformed field"),
    "root no text": (_edited(lambda d: d.update(root=7)), "missing or malformed field"),
    "keys no list": (_edited(lambda d: d.update(keys=7)), "missing or malformed field"),
    "key no object": (_edited(lambda d: d.update(keys=[7])), "missing or malformed field"),
    "odd status": (_edited(lambda d: d["keys"][0].update(status="odd")), "missing or malformed field"),
    "odd date": (_edited(lambda d: d["keys"][0].update(created="odd")), "missing or malformed field"),
    "odd version": (_edited(lambda d: d["keys"][0].update(version=0)), "missing or malformed field"),
    "no keys": (_edited(lambda d: d.update(keys=[])), "only current one"),
    "no current key": (_edited(lambda d: d["keys"][0].update(status="previous")), "only current one"),
    "retired and current": (
        _edited(lambda d: d["keys"][0].update(status="retired", retired="2024-01-01T00:00:00+00:00")),
        "only current one",
    ),
    "retired at no time": (
        _edited(lambda d: d["keys"][0].update(status="retired")),
        "missing or malformed field",
    ),
    "one version twice": (_edited(lambda d: d.update(keys=d["keys"] * 2)), "not in order"),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_keyring_is_refused(keyring: KeyringFile, path: Path, name: str) -> None:
    damage, reason = DAMAGED[name]
    content = path.read_bytes()
    secrets = [json.loads(content)["root"], json.loads(content)["keys"][0]["key"]]
    path.write_bytes(damage(content))
    with pytest.raises(KeyProviderError, match=f"^{path}: the keyring cannot be used: .*{reason}") as caught:
        KeyringFile(path)
    reported = f"{caught.value!r} {caught.value.__context__!r}"
    assert not any(secret[:16] in reported for secret in secrets)
    with pytest.raises(KeyProviderError, match=reason):
        keyring.add()


def test_adding_makes_a_new_current_version(keyring: KeyringFile, path: Path) -> None:
    old = keyring.wrap(Secret(DATA_KEY), b"f")
    added = keyring.add()
    assert added == 2
    versions = KeyringFile(path).versions()
    assert [(key.version, key.status) for key in versions] == [(1, "previous"), (2, "current")]
    assert all(abs(key.created - datetime.now(UTC)) < timedelta(minutes=1) for key in versions)
    new = keyring.wrap(Secret(DATA_KEY), b"f")
    assert (old.kek_version, new.kek_version) == (1, 2)
    for provider in (keyring, KeyringFile(path)):
        assert provider.unwrap(old, b"f").reveal() == provider.unwrap(new, b"f").reveal() == DATA_KEY
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_adding_leaves_purpose_keys_alone(keyring: KeyringFile, path: Path) -> None:
    before = keyring.purpose_key("blind-index")
    keyring.add()
    assert keyring.purpose_key("blind-index") == KeyringFile(path).purpose_key("blind-index") == before


def test_the_list_of_versions_holds_no_keys(keyring: KeyringFile, path: Path) -> None:
    keyring.add()
    document = json.loads(path.read_bytes())
    for reported in (
        repr(keyring.versions()),
        repr(keyring),
        repr(keyring_file.read(path)),
        repr(vars(keyring)),
    ):
        assert not any(key["key"][:16] in reported for key in document["keys"])
        assert document["root"][:16] not in reported
        assert not shown(keyring_file.read(path)[0].root, reported)


def test_a_key_that_another_process_added_is_found(keyring: KeyringFile, path: Path) -> None:
    other = KeyringFile(path)
    other.add()
    wrapped = other.wrap(Secret(DATA_KEY), b"f")
    assert keyring.unwrap(wrapped, b"f").reveal() == DATA_KEY
    assert keyring.wrap(Secret(DATA_KEY), b"f") == wrapped, "and the new version wraps here too"


def test_a_keyring_that_went_away_says_so(keyring: KeyringFile, path: Path) -> None:
    wrapped = keyring.wrap(Secret(DATA_KEY), b"f")
    path.unlink()
    assert keyring.unwrap(wrapped, b"f").reveal() == DATA_KEY
    with pytest.raises(KeyProviderError, match="cannot be read: No such file"):
        keyring.unwrap(wrapped._replace(kek_version=2), b"f")


def test_the_constructions_are_the_documented_ones(keyring: KeyringFile, path: Path) -> None:
    content = keyring_file.read(path)[0]
    place = b"\x01" + (1).to_bytes(8, "big") + b"user_id:480"
    secret = content.keys[0].secret
    assert secret is not None
    expected = b"\x01" + siv_encrypt(secret, DATA_KEY, [place])
    assert keyring.wrap(Secret(DATA_KEY), b"user_id:480") == (1, expected)
    derived = HKDF(SHA256(), 64, None, b"idgraph purpose key: blind-index").derive(content.root)
    assert keyring.purpose_key("blind-index") == derived


def test_a_failed_write_leaves_the_old_keyring(
    keyring: KeyringFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(KeyProviderError, match="cannot be written: No space left on device"):
        keyring.add()
    assert path.read_bytes() == content
    assert not list(path.parent.glob("*.part")) + list(path.parent.glob(".*.part"))


def test_a_change_removes_the_keys_that_a_killed_change_left(keyring: KeyringFile, path: Path) -> None:
    left = path.with_name(f".{path.name}.part")
    left.write_bytes(path.read_bytes())
    keyring.add()
    assert not left.exists()


def test_two_creators_make_one_keyring(path: Path) -> None:
    def create(_: int) -> str:
        try:
            KeyringFile.create(path)
        except KeyProviderError as error:
            return str(error)
        return "made"

    with ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(create, range(8)))
    assert outcomes.count("made") == 1
    assert all("never replaced" in outcome for outcome in outcomes if outcome != "made")


def test_a_retired_secret_is_in_no_file_and_its_number_is_never_given_again(
    keyring: KeyringFile, path: Path
) -> None:
    content = keyring_file.read(path)[0]
    secret = content.keys[0].secret
    assert secret is not None
    wrapped = keyring.wrap(Secret(DATA_KEY), b"f")
    keyring.begin_rotation(after=1)
    assert shown(secret, path.read_text()), "until it is retired it is there"
    keyring.retire(1)
    assert not any(shown(secret, file.read_text()) for file in path.parent.iterdir() if file.is_file())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (retired, current) = KeyringFile(path).versions()
    assert (retired.version, retired.status, current.version) == (1, "retired", 2)
    assert retired.retired is not None
    assert abs(retired.retired - datetime.now(UTC)) < timedelta(minutes=1)
    for provider in (keyring, KeyringFile(path)):
        with pytest.raises(
            UnknownKeyVersionError, match=r"version 1 was retired on \d{4}-\d\d-\d\d: .*copy of"
        ):
            provider.unwrap(wrapped, b"f")
    keyring.retire(1)
    assert keyring.begin_rotation(after=2) == 3


def test_a_change_is_on_disk_when_it_returns(
    keyring: KeyringFile, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        fsync(descriptor)

    keyring.begin_rotation(after=1)
    monkeypatch.setattr(os, "fsync", noted)
    keyring.retire(1)
    assert len(synced) == 2, "the file, then its folder"
    assert synced[0].endswith(".part")
    assert synced[1] == path.parent.name


def test_a_long_running_process_lets_go_of_a_retired_key(keyring: KeyringFile, path: Path) -> None:
    clock = [0.0]
    worker = KeyringFile(path, now=lambda: clock[0])
    wrapped = worker.wrap(Secret(DATA_KEY), b"f")
    keyring.begin_rotation(after=1)
    keyring.retire(1)
    clock[0] = keyring_module.LOOK_SECONDS - 1
    assert worker.unwrap(wrapped, b"f").reveal() == DATA_KEY
    clock[0] += 1
    assert worker.wrap(Secret(DATA_KEY), b"f").kek_version == 2
    assert worker._opened.secrets.held() == [2]
    with pytest.raises(UnknownKeyVersionError):
        worker.unwrap(wrapped, b"f")


def test_a_keyring_that_is_away_for_a_while_stops_nobody(keyring: KeyringFile, path: Path) -> None:
    clock = [0.0]
    worker = KeyringFile(path, now=lambda: clock[0])
    path.rename(path.with_suffix(".away"))
    clock[0] = 10 * keyring_module.LOOK_SECONDS
    assert worker.unwrap(worker.wrap(Secret(DATA_KEY), b"f"), b"f").reveal() == DATA_KEY
    path.with_suffix(".away").rename(path)
    keyring.begin_rotation(after=1)
    clock[0] *= 2
    assert worker.wrap(Secret(DATA_KEY), b"f").kek_version == 2


def test_processes_that_rotate_at_once_make_one_version(keyring: KeyringFile, path: Path) -> None:
    script = "import sys, pathlib, sinks.keyring.provider as k; [k.KeyringFile(pathlib.Path(sys.argv[1])).begin_rotation(n) for n in range(1, 11)]"
    rotating = [subprocess.Popen([sys.executable, "-c", script, str(path)], cwd=ROOT) for _ in range(3)]
    assert [process.wait(60) for process in rotating] == [0, 0, 0]
    assert [key.version for key in KeyringFile(path).versions()] == list(range(1, 12))


def test_processes_that_add_at_once_lose_nothing(keyring: KeyringFile, path: Path) -> None:
    script = "import sys, pathlib, sinks.keyring.provider as k; [k.KeyringFile(pathlib.Path(sys.argv[1])).add() for _ in range(10)]"
    adders = [subprocess.Popen([sys.executable, "-c", script, str(path)], cwd=ROOT) for _ in range(2)]
    assert [adder.wait(60) for adder in adders] == [0, 0]
    assert [key.version for key in KeyringFile(path).versions()] == list(range(1, 22))
