"""Sealed shuffle blocks: what map tasks hand to commit tasks."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from idgraph.model.errors import SealError
from sinks.keyring.provider import KeyringFile
from tests.support.key_canary import shown
from transforms.privacy.record_sealing import ShuffleBlockKeys, ShuffleBlockSealer

PARCEL = b'["fragment","canary-71@example.com"]'


@pytest.fixture
def keyring(tmp_path: Path) -> KeyringFile:
    return KeyringFile.create(tmp_path / "keyring.json")


def opened(sealer: ShuffleBlockSealer, sealed: bytes, part: int = 3) -> bytes:
    return sealer.open(memoryview(sealed), part)


@pytest.mark.parametrize("block", [b"", b"\x00", PARCEL, b"\xff" * 100_000], ids=len)
def test_another_process_opens_it(keyring: KeyringFile, tmp_path: Path, block: bytes) -> None:
    sealed = ShuffleBlockKeys(keyring).sealer("run").seal(block, 3)
    elsewhere = ShuffleBlockKeys(KeyringFile(tmp_path / "keyring.json")).sealer("run")
    assert opened(elsewhere, sealed) == block
    assert len(block) < 8 or block not in sealed


def test_the_wire_format_is_the_documented_one(keyring: KeyringFile) -> None:
    key = HKDF(SHA256(), 32, salt=None, info=b"run").derive(keyring.purpose_key("shuffle-blocks"))
    sealed = ShuffleBlockKeys(keyring).sealer("run").seal(PARCEL, 3)
    assert sealed[:1] == b"\x01"
    assert AESGCM(key).decrypt(sealed[1:13], sealed[13:], b"\x01\x00\x00\x00\x03") == PARCEL


def test_every_altered_byte_is_refused(keyring: KeyringFile) -> None:
    sealer = ShuffleBlockKeys(keyring).sealer("run")
    sealed = sealer.seal(PARCEL, 3)
    for position in range(len(sealed)):
        altered = bytearray(sealed)
        altered[position] ^= 0x40
        with pytest.raises(SealError):
            opened(sealer, bytes(altered))
    for length in range(len(sealed)):
        with pytest.raises(SealError):
            opened(sealer, sealed[:length])


def test_a_block_belongs_to_its_run_task_and_keyring(keyring: KeyringFile, tmp_path: Path) -> None:
    sealer = ShuffleBlockKeys(keyring).sealer("run")
    sealed = sealer.seal(PARCEL, 3)
    other = KeyringFile.create(tmp_path / "other.json")
    for opener, part in [
        (sealer, 4),
        (ShuffleBlockKeys(keyring).sealer("another run"), 3),
        (ShuffleBlockKeys(other).sealer("run"), 3),
    ]:
        with pytest.raises(SealError):
            opened(opener, sealed, part)


def test_equal_blocks_do_not_look_equal(keyring: KeyringFile) -> None:
    sealer = ShuffleBlockKeys(keyring).sealer("run")
    assert len({sealer.seal(PARCEL, 3) for _ in range(100)}) == 100


def test_key_material_is_not_shown_and_does_not_leave_the_process(keyring: KeyringFile) -> None:
    keys = ShuffleBlockKeys(keyring)
    for holder in (keys, keys.sealer("run")):
        assert not shown(keyring.purpose_key("shuffle-blocks"), repr(holder) + str(holder))
        for leave in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError):
                leave(holder)
