"""Blind-index tokens: what is equal, what is kept apart, what they hide."""

from __future__ import annotations

import base64
import copy
import hashlib
import hmac
import pickle
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from idgraph.model.attributes import DataType
from idgraph.model.identifiers import HASHED_PREFIX, Identifier
from sinks.keyring.provider import KeyringFile
from tests.support.key_canary import shown
from transforms.privacy.blind_index import BlindIndex

OWN_TYPES = {
    str: DataType.STRING,
    int: DataType.INTEGER,
    float: DataType.NUMBER,
    Decimal: DataType.NUMBER,
    bool: DataType.BOOLEAN,
    list: DataType.ARRAY,
}


@pytest.fixture(scope="module")
def keyring(tmp_path_factory: pytest.TempPathFactory) -> KeyringFile:
    return KeyringFile.create(tmp_path_factory.mktemp("keys") / "keyring.json")


@pytest.fixture(scope="module")
def index(keyring: KeyringFile) -> BlindIndex:
    return BlindIndex(keyring)


def own_token(index: BlindIndex, value: Any, name: str = "identity.email") -> str:
    return index.token(name, value, OWN_TYPES[type(value)])


def test_the_construction_is_the_documented_one(index: BlindIndex, keyring: KeyringFile) -> None:
    message = b"attribute 14:identity.email" + b"salice@example.com"
    digest = hmac.digest(keyring.purpose_key("blind-index"), message, "sha256")[:16]
    expected = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    assert own_token(index, " Alice@Example.COM ") == expected
    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", expected)


EQUAL: list[tuple[Any, Any]] = [
    ("Alice", "  aLICE\n"),
    ("Straße", "STRASSE"),
    ("ﬁnance", "FINANCE"),
    ("\uff21\uff4c\uff49\uff43\uff45", "alice"),
    ("e\u0301lan", "Élan"),
    ("Σίσυφος", "ΣΊΣΥΦΟΣ"),
    ("\u00a0alice\u3000", "alice"),
    ("²", "2"),
    (42, 42.0),
    (4200, Decimal("4.2E+3")),
    (0, -0.0),
    (0.1, Decimal("0.10")),
    (2**200, Decimal(2**200)),
    (True, True),
    ([1, "a"], [1, "a"]),
]


@pytest.mark.parametrize(("left", "right"), EQUAL, ids=ascii)
def test_values_that_mean_the_same_share_a_token(index: BlindIndex, left: Any, right: Any) -> None:
    assert own_token(index, left) == own_token(index, right)


DIFFERENT: list[tuple[Any, Any]] = [
    ("alice", "alicia"),
    ("a b", "ab"),
    ("42", 42),
    ("true", True),
    (1, True),
    (0, False),
    (42, 420),
    (42, -42),
    (0.1, Decimal("0.1000000000000000055")),
    (2**53, 2**53 + 1),
    ("", " x"),
    (["a"], "a"),
    (["a", "b"], ["b", "a"]),
]


@pytest.mark.parametrize(("left", "right"), DIFFERENT, ids=ascii)
def test_other_values_have_other_tokens(index: BlindIndex, left: Any, right: Any) -> None:
    assert own_token(index, left) != own_token(index, right)


@pytest.mark.parametrize(
    ("searched", "declared", "sent"),
    [
        ("42", DataType.INTEGER, 42),
        (" 4.2e1 ", DataType.NUMBER, 42),
        ("true", DataType.BOOLEAN, True),
        (2117, DataType.STRING, "2117"),
        ("not a number", DataType.NUMBER, "not a number"),
        ("1e99999999999999999999", DataType.NUMBER, "1e99999999999999999999"),
        ("[1]", DataType.NUMBER, "[1]"),
    ],
)
def test_a_value_is_read_as_the_declared_type_where_it_can_be(
    index: BlindIndex, searched: Any, declared: DataType, sent: Any
) -> None:
    assert index.token("a", searched, declared) == own_token(index, sent, "a")


def test_a_number_with_a_vast_exponent_costs_nothing(index: BlindIndex) -> None:
    assert own_token(index, Decimal("1E+999999999")) != own_token(index, Decimal("1E-999999999"))
    assert own_token(index, 10**5000) == own_token(index, Decimal("1E+5000"))


def test_equal_values_under_other_names_do_not_look_equal(index: BlindIndex) -> None:
    tokens = [own_token(index, "alice", name) for name in ("email", "emai", "identity.email", "")]
    tokens.append(index.identifier(Identifier("email", "alice")).value.removeprefix(HASHED_PREFIX))
    assert len(set(tokens)) == 5
    assert own_token(index, "lx", "emai") != own_token(index, "x", "email"), (
        "name and value do not run together"
    )


def test_another_keyring_gives_other_tokens(index: BlindIndex, keyring: KeyringFile, tmp_path: Path) -> None:
    other = BlindIndex(KeyringFile.create(tmp_path / "other.json"))
    assert own_token(other, "alice") != own_token(index, "alice")
    assert own_token(BlindIndex(keyring), "alice") == own_token(index, "alice")


def test_no_token_is_a_hash_that_can_be_had_without_the_key(index: BlindIndex) -> None:
    plain = hashlib.sha256(b"attribute 14:identity.emailsalice").digest()[:16]
    assert own_token(index, "alice") != base64.urlsafe_b64encode(plain).decode().rstrip("=")


def test_an_identifier_is_hashed_exactly_and_once(index: BlindIndex) -> None:
    hashed = index.identifier(Identifier("email", "Alice@example.com"))
    assert hashed.type == "email"
    assert re.fullmatch(r"~[A-Za-z0-9_-]{22}", hashed.value)
    assert index.identifier(hashed) == hashed
    assert Identifier.parse(str(hashed)) == hashed
    assert index.identifier(Identifier("email", "alice@example.com")) != hashed, "case may distinguish ids "
    assert index.identifier(Identifier("mail", "Alice@example.com")).value != hashed.value


@pytest.mark.parametrize(
    "value", ["~", "~alice", "~" + "A" * 23, "~" + "A" * 21 + "B", "~" + "A" * 22 + "\n"]
)
def test_a_value_that_only_looks_hashed_is_hashed(index: BlindIndex, value: str) -> None:
    assert index.identifier(Identifier("email", value)).value != value


def test_many_names_do_not_fill_memory(index: BlindIndex) -> None:
    before = own_token(index, "alice")
    for number in range(5000):
        own_token(index, "alice", f"hostile.{number}")
    assert index._start.cache_info().currsize <= 4096
    assert own_token(index, "alice") == before


def test_the_blind_index_shows_nothing_and_stays_where_it_is(index: BlindIndex, keyring: KeyringFile) -> None:
    assert repr(index) == str(index) == "<BlindIndex>"
    assert not shown(keyring.purpose_key("blind-index"), f"{index!r} {vars(index)!r}")
    for leave in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="BlindIndex holds keys"):
            leave(index)
