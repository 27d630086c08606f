"""Sealed payloads of dead letters."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path

import pytest

from idgraph.model.errors import SealError
from sinks.keyring.provider import KeyringFile
from tests.support.key_canary import shown
from tests.support.siv_reference import siv_encrypt
from transforms.privacy.record_sealing import DeadLetterSealer

PAYLOAD = b'{"email": "canary-71@example.com'


@pytest.fixture
def keyring(tmp_path: Path) -> KeyringFile:
    return KeyringFile.create(tmp_path / "keyring.json")


@pytest.mark.parametrize("payload", [b"", b"\x00", PAYLOAD, b"\xff" * 100_000], ids=len)
def test_a_record_comes_back_byte_for_byte(keyring: KeyringFile, payload: bytes) -> None:
    sealed = DeadLetterSealer(keyring).seal(payload, "id", "file:a#1")
    assert DeadLetterSealer(keyring).open(sealed, "id", "file:a#1") == payload
    assert DeadLetterSealer(keyring).seal(payload, "id", "file:a#1") == sealed
    assert len(payload) < 8 or payload not in sealed


def test_the_wire_format_is_the_documented_one(keyring: KeyringFile) -> None:
    place = b'\x01["id","file:a#1"]'
    expected = b"\x01" + siv_encrypt(keyring.purpose_key("dead-letters"), PAYLOAD, [place])
    assert DeadLetterSealer(keyring).seal(PAYLOAD, "id", "file:a#1") == expected


def test_a_dead_letters_id_is_of_the_record_and_its_place(keyring: KeyringFile, tmp_path: Path) -> None:
    place = ("web", "file:a#1", "decode", "not_json", "")
    expected = siv_encrypt(
        keyring.purpose_key("dead-letters"), PAYLOAD, [b'\x01id["web","file:a#1","decode","not_json",""]']
    )
    sealer = DeadLetterSealer(keyring)
    assert sealer.dead_letter_id(PAYLOAD, place) == expected[:12].hex()
    other = DeadLetterSealer(KeyringFile.create(tmp_path / "other.json"))
    elsewhere = [(*place[:at], place[at] + "x", *place[at + 1 :]) for at in range(len(place))]
    ids = {sealer.dead_letter_id(PAYLOAD, each) for each in (place, *elsewhere)}
    ids |= {
        other.dead_letter_id(PAYLOAD, place),
        sealer.dead_letter_id(PAYLOAD + b" ", place),
        sealer.dead_letter_id(b"", place),
    }
    assert len(ids) == 9
    assert {len(each) for each in ids} == {24}


def test_every_altered_byte_is_refused(keyring: KeyringFile) -> None:
    sealer = DeadLetterSealer(keyring)
    sealed = sealer.seal(PAYLOAD, "id", "file:a#1")
    for position in range(len(sealed)):
        altered = bytearray(sealed)
        altered[position] ^= 0x40
        with pytest.raises(SealError):
            sealer.open(bytes(altered), "id", "file:a#1")
    for length in range(len(sealed)):
        with pytest.raises(SealError, match=r"altered|truncated"):
            sealer.open(sealed[:length], "id", "file:a#1")


def test_a_payload_belongs_to_its_dead_letter_and_keyring(keyring: KeyringFile, tmp_path: Path) -> None:
    sealer = DeadLetterSealer(keyring)
    sealed = sealer.seal(PAYLOAD, "id", "file:a#1")
    other = DeadLetterSealer(KeyringFile.create(tmp_path / "other.json"))
    for opener, dead_letter_id, position in [
        (sealer, "id2", "file:a#1"),
        (sealer, "id", "file:a#2"),
        (sealer, 'id","file:a#1', ""),
        (other, "id", "file:a#1"),
    ]:
        with pytest.raises(SealError, match="altered, moved, or sealed under another keyring") as caught:
            opener.open(sealed, dead_letter_id, position)
        assert "canary" not in str(caught.value)


def test_the_sealer_shows_nothing_and_stays_where_it_is(keyring: KeyringFile) -> None:
    sealer = DeadLetterSealer(keyring)
    assert repr(sealer) == str(sealer) == "<DeadLetterSealer>"
    assert not shown(keyring.purpose_key("dead-letters"), repr(sealer))
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="holds keys"):
            leave(sealer)
