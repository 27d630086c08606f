"""Findings by a value's shape. Numbers are published examples: of card networks for testing, of the IBAN
registry, of the documentation of national numbers."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.classification import SensitiveKind as Kind
from transforms.schema.detection import detect, shaped

REPORTED = [
    (Kind.EMAIL, "ann.lee@example.com"),
    (Kind.EMAIL, " Ann.Lee+x@Mail.Example.co.uk "),
    (Kind.EMAIL, "mail from user:ann@example.com to me"),
    (Kind.EMAIL, "jörg@müller.example"),
    (Kind.EMAIL, "ann@example.com-2024-05-01"),
    (Kind.EMAIL, "ann@example.com_2024"),
    (Kind.EMAIL, "ann@example.com2"),
    (Kind.EMAIL, "/unsubscribe?who=ann%40example.com&list=3"),
    (Kind.PHONE, "+1 415 555 2671"),
    (Kind.PHONE, "+442079460123"),
    (Kind.PHONE, "0049 30 901820"),
    (Kind.PHONE, "(415) 555-2671"),
    (Kind.PHONE, "415-555-2671"),
    (Kind.PAYMENT_CARD, "4111111111111111"),
    (Kind.PAYMENT_CARD, "5555 5555 5555 4444"),
    (Kind.PAYMENT_CARD, "3782-822463-10005"),
    (Kind.PAYMENT_CARD, "paid with 6011111111111117."),
    (Kind.PAYMENT_CARD, "30569309025904"),
    (Kind.BANK_ACCOUNT, "DE89370400440532013000"),
    (Kind.BANK_ACCOUNT, "GB82 WEST 1234 5698 7654 32"),
    (Kind.BANK_ACCOUNT, "to FR1420041010050500013M02606 PLEASE"),
    (Kind.BANK_ACCOUNT, "to GB82 WEST 1234 5698 7654 32 AT ONCE"),
    (Kind.NATIONAL_ID, "536-90-4399"),
    (Kind.NATIONAL_ID, "390.533.447-05"),
    (Kind.NATIONAL_ID, "360426199101010071"),
    (Kind.NATIONAL_ID, "131052-308T"),
    (Kind.NATIONAL_ID, "2 95 10 99 126 111 93"),
    (Kind.NATIONAL_ID, "2341 2341 2346"),
    (Kind.NATIONAL_ID, "RCCMNL83S18D969H"),
    (Kind.NATIONAL_ID, "971013-9019902"),
    (Kind.NATIONAL_ID, "BOXW310820HNERXN09"),
    (Kind.NATIONAL_ID, "54362315K"),
    (Kind.NATIONAL_ID, "x-2482300w"),
    (Kind.NATIONAL_ID, "880320-0016"),
    (Kind.NATIONAL_ID, "756.9217.0769.85"),
    (Kind.NATIONAL_ID, "123-456-782"),
    (Kind.STREET_ADDRESS, "221b Baker Street, London"),
    (Kind.STREET_ADDRESS, "69 giblin street"),
    (Kind.STREET_ADDRESS, "12 Main St"),
    (Kind.STREET_ADDRESS, "Hauptstraße 12, Köln"),
    (Kind.STREET_ADDRESS, "8 rue Lepic"),
    (Kind.STREET_ADDRESS, "Calle de Alcalá 42"),
    (Kind.IP_ADDRESS, "8.8.8.8"),
    (Kind.IP_ADDRESS, "10.0.0.1"),
    (Kind.IP_ADDRESS, "93.184.216.34:443"),
    (Kind.IP_ADDRESS, "2600:1406:3a00:21::173e:2e65"),
    (Kind.IP_ADDRESS, "[2600:1406:3a00:21::173e:2e65]:443"),
    (Kind.GEOLOCATION, "48.8584, 2.2945"),
    (Kind.GEOLOCATION, "geo:-33.8568,151.2153"),
    (Kind.SECRET, "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N"),
    (Kind.SECRET, "Authorization: Bearer mF_9.B5f-4.1JqM4aBcDe"),
    (Kind.SECRET, "AKIA" + "IOSFODNN7EXAMPLE"),
    (Kind.SECRET, "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"),
    (Kind.SECRET, "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIE"),
    (Kind.SECRET, "postgresql://ann:" + "hunter22@db.internal/x"),
    (Kind.SECRET, "X1Y2z3Abc8dEfgH9iJkLmnOp4Qr5"),
]

SILENT = [
    "",
    "Ann Lee",
    "@example.com",
    "me@localhost",
    "package@1.2.3",
    "100%40 of it",
    "%40example.com",
    "2024-03-01T12:00:00.123Z",
    "1709251200000",
    "4111111111111112",
    "14111111111111111",
    "1234567890123456",
    "DE89370400440532013001",
    "536-90-439",
    "000-90-4399",
    "390.533.447-06",
    "RCCMNL83S18D969X",
    "6b6d44f0-b13a-46a0-bfde-161324d4c34d",
    "da39a3ee5e6b4b0d3255bfef95601890afd80709",
    "arn:aws:iam::123456789012:role/OrganizationAccountAccessRole",
    "/subscriptions/resourceGroups/providers/Microsoft.Storage/listKeys",
    "ECDHE-RSA-AES128-GCM-SHA256",
    "MDEyOk9yZ2FuaXphdGlvbjY4MTE2NzI=",
    "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/537.36",
    "127.0.0.1",
    "::",
    "1.2.3",
    "256.1.1.1",
    "12:30:45",
    "1.5, 2.5",
    "911.123, 2.123",
    "12 monkeys on a tree",
    "+1 415 555",
]


@pytest.mark.parametrize(("kind", "text"), REPORTED, ids=str)
def test_a_shape_reports_its_kind(kind: Kind, text: str) -> None:
    found = shaped(text)
    assert found is not None
    assert found.kind is kind


@pytest.mark.parametrize("text", SILENT, ids=str)
def test_what_only_looks_alike_is_left_alone(text: str) -> None:
    assert shaped(text) is None


@pytest.mark.parametrize("text", ["4111111111111111", "5555 5555 5555 4444", "DE89370400440532013000"])
def test_one_wrong_digit_is_no_number_any_more(text: str) -> None:
    for place in [place for place, character in enumerate(text) if character.isdigit()]:
        wrong = text[:place] + str((int(text[place]) + 1) % 10) + text[place + 1 :]
        assert shaped(wrong) is None, wrong


@pytest.mark.parametrize(
    "text", ["pay DE89 3704 0044 0532 0130 00 TODAY OR ELSE", "GB82WEST12345698765432", "NO93 8601 1117 947"]
)
def test_an_account_number_may_stand_in_a_sentence(text: str) -> None:
    found = shaped(text)
    assert found is not None
    assert found.kind is Kind.BANK_ACCOUNT


def test_a_candidate_is_validated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by an attacker: a text of candidates with many groups took seconds, each validated some thirty times."""
    validated: list[str] = []
    monkeypatch.setattr("stdnum.iban.is_valid", validated.append)
    candidate = "DE12" + " A" * 30
    assert shaped(f"{candidate}, " * 50) is None
    assert len(validated) <= 50


def test_a_number_counts_as_its_digits() -> None:
    found = detect(("n",), {}, 4111111111111111)
    assert found is not None
    assert found.kind is Kind.PAYMENT_CARD
    assert detect(("n",), {}, 1709251200000) is None
    assert detect(("n",), {}, -4111111111111111) is None


def test_every_element_of_an_array_counts() -> None:
    deep: object = ["x", {"value": "ann@example.com"}]
    for _ in range(5000):
        deep = [deep]
    found = detect(("n",), {}, deep)
    assert found is not None
    assert found.kind is Kind.EMAIL
    named = detect(("people",), {}, [{"dateOfBirth": "1990"}])
    assert named is not None
    assert named.kind is Kind.DATE_OF_BIRTH
    assert detect(("n",), {}, ["a", 1, None, True, {"b": 2.5}]) is None


@given(st.text(max_size=80) | st.from_regex(r"[0-9+@.:eyJ ()-]{0,40}", fullmatch=True))
def test_any_text_is_judged_and_never_quoted(text: str) -> None:
    found = shaped(text)
    assert found is None or len(text) < 20 or text not in found.reason
    assert shaped(text) == found


@pytest.mark.parametrize(
    "piece",
    [
        *(
            "@",
            "a@a.",
            "a@a.a ",
            "%40",
            "a%40a.a ",
            "a@a.aa-a",
            "eyJaaaaaaaa-",
            "eyJaaaaaaaa.",
            "4111 ",
            "41111111111111 ",
            "GB82 ",
            "aB3",
        ),
        *(
            "://a:",
            "://",
            "AKIA",
            "sk-",
            "Bearer ",
            "SG.aaaaaaaaaaaaaaaa",
            "1.",
            "::",
            "12 a ",
            "-----BEGIN ",
        ),
    ],
)
def test_hostile_texts_take_time_in_proportion(piece: str) -> None:
    text = piece * (400_000 // len(piece))
    started = time.process_time()
    shaped(text)
    assert time.process_time() - started < 3
