"""Sealed values: known answers, the wire format, and what must be refused."""

from __future__ import annotations

import base64
import copy
import hashlib
import pickle
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESSIV

from idgraph.model.classification import SealedValue
from idgraph.model.errors import KeyProviderError, SealError
from idgraph.model.stamps import Stamp
from tests.support.key_canary import shown
from tests.support.siv_reference import siv_encrypt
from transforms.privacy.sealing import SealingKey, UnusableKey

KEY = hashlib.sha512(b"a data key for tests").digest()
STAMP = Stamp(0, 5, "shop", "event-1")
PLACE = ("identity.email", STAMP)
CANARY = "canary-4f1c@example.com"

RFC_5297 = {
    "A.1 deterministic": (
        "fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff",
        ["101112131415161718191a1b1c1d1e1f2021222324252627"],
        "112233445566778899aabbccddee",
        "85632d07c6e8f37f950acd320a2ecc9340c02b9690c4dc04daef7f6afe5c",
    ),
    "A.2 nonce-based": (
        "7f7e7d7c7b7a79787776757473727170404142434445464748494a4b4c4d4e4f",
        [
            "00112233445566778899aabbccddeeffdeaddadadeaddadaffeeddccbbaa99887766554433221100",
            "102030405060708090a0",
            "09f911029d74e35bd84156c5635688c0",
        ],
        "7468697320697320736f6d6520706c61696e7465787420746f20656e6372797074207573696e67205349562d414553",
        "7bdb6e3b432667eb06f4d14bff2fbd0fcb900f2fddbe404326601965c889bf17"
        "dba77ceb094fa663b7a3f748ba8af829ea64ad544a272e9c485b62a3fd5c0d",
    ),
}

"""Key, associated data, plaintext, and synthetic IV with ciphertext."""

# OpenSSL's test/recipes/30-test_evp_data/evpciph_aes_siv.txt (Apache-2.0): the RFC has AES-128 alone, we use AES-256.
OPENSSL = {
    "AES-192": (
        "fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0f0f1f2f3f4f5f6f7f8f9fafbfcfdfefffffefdfcfbfaf9f8f7f6f5f4f3f2f1f0",
        ["101112131415161718191a1b1c1d1e1f2021222324252627"],
        "112233445566778899aabbccddee",
        "89e869b93256785154f0963962fe0740eff356e42dec1f4febded36642f2",
    ),
    "AES-256": (
        "fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"
        "f0f1f2f3f4f5f6f7f8f9fafbfcfdfefffffefdfcfbfaf9f8f7f6f5f4f3f2f1f0",
        ["101112131415161718191a1b1c1d1e1f2021222324252627"],
        "112233445566778899aabbccddee",
        "724dfb2eaf94dbb19b0ba3a299a0801ef3b05a55498ec2552690b89810e4",
    ),
}
KNOWN_ANSWERS = RFC_5297 | OPENSSL


@pytest.mark.parametrize("name", KNOWN_ANSWERS)
def test_known_answers(name: str) -> None:
    key, components, plain, sealed = KNOWN_ANSWERS[name]
    raw = bytes.fromhex(plain)
    associated = [bytes.fromhex(component) for component in components]
    assert AESSIV(bytes.fromhex(key)).encrypt(raw, associated).hex() == sealed
    assert siv_encrypt(bytes.fromhex(key), raw, associated).hex() == sealed
    assert AESSIV(bytes.fromhex(key)).decrypt(bytes.fromhex(sealed), associated) == raw


def test_the_wire_format_is_the_documented_one() -> None:
    header = b"\x02" + hashlib.sha256(b"idgraph data-key version\0" + KEY).digest()[:4]
    place = header + b'"user_id:480"' + b'["identity.email","shop","event-1",0,5,null]'
    plain = b'{"a":[1,true]}  '
    expected = base64.b64encode(header + siv_encrypt(KEY, plain, [place])).decode()
    assert SealingKey(KEY, "user_id:480").seal({"a": [1, True]}, *PLACE) == expected
    place = place.replace(b"null", b'"t0k"')
    expected = base64.b64encode(header + siv_encrypt(KEY, plain, [place])).decode()
    assert SealingKey(KEY, "user_id:480").seal({"a": [1, True]}, *PLACE, "t0k") == f"{expected}.t0k"


def test_a_sealed_value_of_today_opens_for_ever() -> None:
    sealed = (
        "Ai2jyHWasylfVNr6ETpvIbUpkxK6CearR/pNrwVRvRauV4yedgYXk3Dsh9/Q"
        "ykAf/h6fUT2ZVydoItVYpyjkwoHl9ZvL3nhO1a3WDa/UQl4rpEsRVA=="
    )
    assert SealingKey(KEY, "user_id:480").open(sealed, *PLACE) == [CANARY, 2**70, Decimal("1E+400"), None]


def test_a_sealed_value_of_another_format_is_refused() -> None:
    sealed = (
        "AS2jyHVK3jHRbOkxWNsZdjunO5YddesSuqqlxBts8uhg86OIW8CzVjBQdjES"
        "iPtT0fJ+KKioD58VBIQKLVA6Yc21fFe1l1MmiE3QRuWJv9DqSetPlA=="
    )
    key = SealingKey(KEY, "user_id:480")
    assert not key.has_sealed(sealed)
    with pytest.raises(SealError, match="unknown format version 1"):
        key.open(sealed, *PLACE)


def test_a_key_that_rested_seals_and_opens_as_before() -> None:
    key = SealingKey(KEY, "user_id:480")
    sealed = key.seal("x", *PLACE)
    key.rest()
    assert key.open(sealed, *PLACE) == "x"
    key.rest()
    assert key.seal("x", *PLACE) == sealed


VALUES: list[Any] = [
    "",
    "a",
    "ü" * 300,
    0,
    -1,
    2**200,
    0.1,
    1e22,
    True,
    False,
    None,
    [],
    ["a", [1, {"b": None}]],
]


@pytest.mark.parametrize("value", [*VALUES, Decimal("3.14159265358979323846"), Decimal("-1E+999")], ids=ascii)
def test_a_value_comes_back_with_its_type(value: Any) -> None:
    key = SealingKey(KEY, "user_id:480")
    opened = key.open(key.seal(value, *PLACE), *PLACE)
    assert (type(opened), opened) == (type(value), value)


def test_short_values_do_not_differ_in_length() -> None:
    key = SealingKey(KEY, "user_id:480")
    assert (
        len({len(key.seal(value, *PLACE)) for value in (True, False, "", "M", "Maximilian", 7, 123456)}) == 1
    )


def test_equal_values_of_other_events_do_not_look_equal() -> None:
    key = SealingKey(KEY, "user_id:480")
    places = [PLACE, *(place for fragment, place in MOVED.values() if place != PLACE)]
    sealed = [key.seal("x", *place) for place in places]
    sealed += [
        SealingKey(KEY, "user_id:481").seal("x", *PLACE),
        SealingKey(bytes(64), "user_id:480").seal("x", *PLACE),
    ]
    bodies = {base64.b64decode(text)[5:] for text in sealed}
    assert len(bodies) == len(sealed)


def test_the_parts_of_a_place_do_not_run_together() -> None:
    key = SealingKey(KEY, "f")
    sealed = key.seal("x", "ab", Stamp(0, 1, "c", "d"))
    for path, *event in [("a", "bc", "d"), ("ab", "cd", ""), ('ab","c', "", "d"), ("ab", 'c","d', "")]:
        with pytest.raises(SealError):
            key.open(sealed, path, Stamp(0, 1, *event))
    with pytest.raises(SealError):
        SealingKey(KEY, 'f"["ab"').open(sealed, "ab", Stamp(0, 1, "c", "d"))


def _altered(sealed: str, change: Callable[[bytearray], Any]) -> str:
    raw = bytearray(base64.b64decode(sealed))
    change(raw)
    return base64.b64encode(raw).decode()


REFUSED: dict[str, tuple[Callable[[str], str], str]] = {
    "empty": (lambda text: "", "truncated"),
    "not base64": (lambda text: "!" + text[1:], "not base64"),
    "not ASCII": (lambda text: "é" + text[1:], "not base64"),
    "with white space": (lambda text: text[:8] + "\n" + text[8:], "not base64"),
    "without padding": (lambda text: text.rstrip("="), "not base64"),
    "with something behind": (lambda text: text + "AAAA", "not base64"),
    "header only": (lambda text: _altered(text, lambda raw: raw.__delitem__(slice(5, None))), "truncated"),
    "last byte gone": (lambda text: _altered(text, lambda raw: raw.pop()), "truncated"),
    "a block longer": (lambda text: _altered(text, lambda raw: raw.extend(bytes(16))), "altered"),
    "unknown version": (
        lambda text: _altered(text, lambda raw: raw.__setitem__(0, 9)),
        "unknown format version 9",
    ),
    "other data key": (
        lambda text: _altered(text, lambda raw: raw.__setitem__(4, raw[4] ^ 1)),
        "another data key",
    ),
    "altered tag": (lambda text: _altered(text, lambda raw: raw.__setitem__(5, raw[5] ^ 1)), "altered"),
    "altered end": (lambda text: _altered(text, lambda raw: raw.__setitem__(-1, raw[-1] ^ 1)), "altered"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_was_not_sealed_here_is_refused(name: str) -> None:
    key = SealingKey(KEY, "user_id:480")
    change, reason = REFUSED[name]
    # 16 bytes of plaintext: 37 bytes in all, so that the base64 has padding to tamper with.
    with pytest.raises(SealError, match=reason) as caught:
        key.open(change(key.seal(True, *PLACE)), *PLACE)
    assert "identity.email" in str(caught.value)


MOVED: dict[str, tuple[str, tuple[str, Stamp]]] = {
    "fragment": ("user_id:481", PLACE),
    "path": ("user_id:480", ("identity.mail", STAMP)),
    "source": ("user_id:480", (PLACE[0], STAMP._replace(source="crm"))),
    "event": ("user_id:480", (PLACE[0], STAMP._replace(event_id="event-2"))),
    "priority": ("user_id:480", (PLACE[0], STAMP._replace(priority=1000))),
    "ordinal": ("user_id:480", (PLACE[0], STAMP._replace(ordinal=2**62))),
}


@pytest.mark.parametrize("what", MOVED)
def test_a_moved_value_is_refused(what: str) -> None:
    fragment, place = MOVED[what]
    sealed = SealingKey(KEY, "user_id:480").seal("x", *PLACE)
    with pytest.raises(SealError, match="altered, or moved from another fragment, path or stamp"):
        SealingKey(KEY, fragment).open(sealed, *place)


def test_a_token_of_another_value_is_refused() -> None:
    key = SealingKey(KEY, "user_id:480")
    sealed = key.seal("x", *PLACE, "one")
    assert key.open(sealed, *PLACE) == "x"
    for text in (sealed.replace(".one", ".two"), sealed.removesuffix(".one")):
        with pytest.raises(SealError, match="altered"):
            key.open(text, *PLACE)
    with pytest.raises(SealError, match="altered"):
        key.open(f"{key.seal('x', *PLACE)}.one", *PLACE)
    with pytest.raises(SealError, match="not base64"):
        key.open(f"{key.seal('x', *PLACE)}.", *PLACE)


@pytest.mark.parametrize("what", [each for each in MOVED if each != "fragment"])
def test_two_swapped_values_are_both_refused(what: str) -> None:
    key, other = SealingKey(KEY, "user_id:480"), MOVED[what][1]
    here, there = key.seal("x", *PLACE), key.seal("x", *other)
    assert key.open(here, *PLACE) == key.open(there, *other) == "x"
    for sealed, place in ((there, PLACE), (here, other)):
        with pytest.raises(SealError, match="moved"):
            key.open(sealed, *place)


def test_values_swapped_between_fragments_are_refused() -> None:
    keys = [SealingKey(bytes([number]) * 64, f"user_id:{number}") for number in (1, 2)]
    sealed = [key.seal("x", *PLACE) for key in keys]
    for key, text in zip(keys, reversed(sealed), strict=True):
        with pytest.raises(SealError, match="belongs to another data key"):
            key.open(text, *PLACE)


def test_every_truncation_is_refused() -> None:
    key = SealingKey(KEY, "user_id:480")
    sealed = key.seal("a value of more than one block", *PLACE)
    for length in range(len(sealed)):
        with pytest.raises(SealError):
            key.open(sealed[:length], *PLACE)


def test_every_altered_byte_is_refused() -> None:
    key = SealingKey(KEY, "user_id:480")
    sealed = key.seal("a value of more than one block", *PLACE)
    for position in range(len(base64.b64decode(sealed))):
        with pytest.raises(SealError):
            key.open(_altered(sealed, lambda raw, at=position: raw.__setitem__(at, raw[at] ^ 0x80)), *PLACE)  # type: ignore[misc]


@pytest.mark.parametrize("value", ["\ud800", {"a": object()}, 10**5000], ids=["surrogate", "object", "huge"])
def test_what_json_cannot_hold_is_refused_without_quoting_it(value: Any) -> None:
    with pytest.raises(SealError, match="cannot be written as JSON") as caught:
        SealingKey(KEY, "f").seal(value, *PLACE)
    assert caught.value.__context__ is None
    with pytest.raises(SealError):
        SealingKey(KEY, "f").seal("x", "a\ud800", STAMP)
    with pytest.raises(SealError):
        SealingKey(KEY, "f").open("AAAA", "a\ud800", STAMP)


def test_a_key_of_another_length_is_refused() -> None:
    with pytest.raises(KeyProviderError, match="64 bytes, this one has 32"):
        SealingKey(KEY[:32], "f")


@pytest.mark.parametrize("key", [SealingKey(KEY, "user_id:480"), UnusableKey(KeyProviderError("the reason"))])
def test_a_handle_shows_nothing_and_stays_where_it_is(key: SealingKey) -> None:
    for text in (repr(key), str(key), f"{key}", repr([key]), repr({"k": key})):
        assert not shown(KEY, text)
        assert "480" not in text
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="each process opens its own key provider"):
            leave(key)
    assert key != SealingKey(KEY, "user_id:480")
    assert not hasattr(key, "__dict__")
    with pytest.raises(TypeError):
        _ = key < key  # type: ignore[operator]


def test_an_unusable_key_says_why_at_every_use() -> None:
    key = UnusableKey(KeyProviderError("no key-encryption key of version 3"))
    with pytest.raises(KeyProviderError, match="version 3"):
        key.seal("x", *PLACE)
    with pytest.raises(KeyProviderError, match="version 3"):
        key.open("x", *PLACE)


def test_no_error_holds_plaintext_or_key_bytes() -> None:
    key = SealingKey(KEY, "user_id:canary-id")
    sealed = key.seal(CANARY, *PLACE)
    attempts: list[Callable[[], object]] = [
        lambda: key.open(sealed, "other", *PLACE[1:]),
        lambda: key.open(sealed[:-4], *PLACE),
        lambda: key.open(_altered(sealed, lambda raw: raw.__setitem__(0, 3)), *PLACE),
        lambda: SealingKey(bytes(64), "user_id:canary-id").open(sealed, *PLACE),
        lambda: key.seal([CANARY, object()], *PLACE),
        lambda: key.seal(CANARY + "\ud800", *PLACE),
    ]
    for attempt in attempts:
        with pytest.raises(SealError) as caught:
            attempt()
        error: BaseException | None = caught.value
        while error is not None:
            reported = f"{error!s} {error!r} {error.args!r} {vars(error)!r}"
            assert "canary" not in reported
            assert not shown(KEY, reported)
            error = error.__cause__ or error.__context__


def test_threads_share_a_handle() -> None:
    key = SealingKey(KEY, "user_id:480")

    def work(number: int) -> bool:
        return all(key.open(key.seal([number, i], *PLACE), *PLACE) == [number, i] for i in range(300))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


def test_sealed_text_and_token_share_a_register() -> None:
    sealed = SealingKey(KEY, "f").seal("x", *PLACE)
    assert SealedValue.parse(str(SealedValue(sealed, "token"))) == SealedValue(sealed, "token")
