"""AES-SIV written down from RFC 5297, section 2, with nothing but AES-CMAC and AES-CTR: the second opinion."""

from __future__ import annotations

from collections.abc import Sequence

from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR
from cryptography.hazmat.primitives.cmac import CMAC

_ALL = (1 << 128) - 1
_COUNTER_MASK = _ALL ^ (1 << 63) ^ (1 << 31)


def siv_encrypt(key: bytes, plain: bytes, components: Sequence[bytes]) -> bytes:
    """The synthetic IV followed by the ciphertext."""
    half = len(key) // 2
    iv = _s2v(key[:half], [*components, plain])
    counter = int.from_bytes(iv, "big") & _COUNTER_MASK
    stream = Cipher(AES(key[half:]), CTR(counter.to_bytes(16, "big"))).encryptor()
    return iv + stream.update(plain) + stream.finalize()


def _s2v(key: bytes, strings: Sequence[bytes]) -> bytes:
    state = _cmac(key, bytes(16))
    for string in strings[:-1]:
        state = _xor(_double(state), _cmac(key, string))
    last = strings[-1]
    if len(last) >= 16:
        return _cmac(key, last[:-16] + _xor(last[-16:], state))
    return _cmac(key, _xor(_double(state), (last + b"\x80").ljust(16, b"\0")))


def _double(block: bytes) -> bytes:
    number = int.from_bytes(block, "big") << 1
    return (number & _ALL ^ (0x87 if number >> 128 else 0)).to_bytes(16, "big")


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _cmac(key: bytes, message: bytes) -> bytes:
    code = CMAC(AES(key))
    code.update(message)
    return code.finalize()
