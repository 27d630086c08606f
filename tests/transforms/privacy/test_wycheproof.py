"""Wycheproof's AES-SIV-CMAC vectors against the cipher of a sealing key, and against the second opinion.

`wycheproof/` holds those of the file `testvectors_v1/aes_siv_cmac_test.json` of C2SP/wycheproof whose keys
have 512 bits, as ours do (Apache-2.0, licence beside it): good ones, edge cases of the synthetic IV, and
tags that were altered in every place where an implementation may forget to look.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography.exceptions import InvalidTag

from tests.support.siv_reference import siv_encrypt
from transforms.privacy.sealing import SealingKey

FILE = Path(__file__).with_name("wycheproof") / "aes_siv_cmac_512.json"


class Vector(NamedTuple):
    label: str
    key: bytes
    associated: bytes
    plain: bytes
    sealed: bytes
    is_valid: bool


def vectors() -> list[Vector]:
    return [
        Vector(
            f"{case['tcId']} {case['comment']}",
            bytes.fromhex(case["key"]),
            bytes.fromhex(case["aad"]),
            bytes.fromhex(case["msg"]),
            bytes.fromhex(case["ct"]),
            case["result"] == "valid",
        )
        for case in json.loads(FILE.read_bytes())["cases"]
    ]


VECTORS = vectors()


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector.label)
def test_vector(vector: Vector) -> None:
    cipher = SealingKey(vector.key, "user_id:1")._cipher()
    if not vector.is_valid:
        with pytest.raises(InvalidTag):
            cipher.decrypt(vector.sealed, [vector.associated])
        return
    assert cipher.decrypt(vector.sealed, [vector.associated]) == vector.plain
    assert cipher.encrypt(vector.plain, [vector.associated]) == vector.sealed
    assert siv_encrypt(vector.key, vector.plain, [vector.associated]) == vector.sealed


def test_there_are_vectors_of_both_kinds() -> None:
    counted = [sum(vector.is_valid is kind for vector in VECTORS) for kind in (True, False)]
    assert counted == [39, 108]
