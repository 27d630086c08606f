"""Findings by an attribute's name, in whatever spelling."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from idgraph.model.classification import SensitiveKind as Kind
from transforms.schema.detection import detect
from transforms.schema.detection.kinds import LEVELS
from transforms.schema.detection.names import NAME_RULES, NOT_NAMES, named, words

NAMED = [
    (Kind.EMAIL, "user.email"),
    (Kind.EMAIL, "eMail"),
    (Kind.EMAIL, "E_MAIL"),
    (Kind.EMAIL, "contact.email-address"),
    (Kind.EMAIL, "primary_emails"),
    (Kind.EMAIL, "email.address"),
    (Kind.PHONE, "home_phone"),
    (Kind.PHONE, "MobileNumber"),
    (Kind.PHONE, "phone.number"),
    (Kind.PAYMENT_CARD, "creditCardNumber"),
    (Kind.BANK_ACCOUNT, "IBAN"),
    (Kind.NATIONAL_ID, "soc_sec_id"),
    (Kind.NATIONAL_ID, "SSN"),
    (Kind.STREET_ADDRESS, "address_1"),
    (Kind.STREET_ADDRESS, "shipping.line1"),
    (Kind.STREET_ADDRESS, "streetAddress"),
    (Kind.STREET_ADDRESS, "postcode"),
    (Kind.DATE_OF_BIRTH, "date_of_birth"),
    (Kind.DATE_OF_BIRTH, "DOB"),
    (Kind.DATE_OF_BIRTH, "profile.birth"),
    (Kind.ADVERTISING_ID, "device.advertisingId"),
    (Kind.ADVERTISING_ID, "IDFA"),
    (Kind.ADVERTISING_ID, "context.gaid"),
    (Kind.ADVERTISING_ID, "aaid"),
    (Kind.DEMOGRAPHIC, "demographics.gender"),
    (Kind.DEMOGRAPHIC, "marital_status"),
    (Kind.IP_ADDRESS, "clientIPAddress"),
    (Kind.IP_ADDRESS, "sourceIPs"),
    (Kind.IP_ADDRESS, "IpAddressV4"),
    (Kind.IP_ADDRESS, "agentIPv6"),
    (Kind.IP_ADDRESS, "LocalAddressIP4"),
    (Kind.GEOLOCATION, "geo.latitude"),
    (Kind.SECRET, "client_secret"),
    (Kind.SECRET, "API-KEY"),
    (Kind.SECRET, "accessToken"),
    (Kind.SECRET, "userPassword"),
]

SILENT = [
    "emailVerified",
    "placeOfBirth",
    "birthControl",
    "squad.id",
    "genderNeutral",
    "zipped",
    "ship",
    "description",
    "platform",
    "tokenType",
    "nextPageToken",
    "keys",
    "1",
    "",
]


@pytest.mark.parametrize(("kind", "path"), NAMED, ids=str)
def test_a_name_reports_its_kind(kind: Kind, path: str) -> None:
    assert named(path.split("."))[str].kind is kind


@pytest.mark.parametrize("path", SILENT)
def test_other_names_report_nothing(path: str) -> None:
    assert named(path.split(".")) == {}


def test_a_name_speaks_of_the_types_that_such_data_has() -> None:
    assert detect(("phone",), named(("phone",)), 4155552671) is not None
    assert detect(("phone",), named(("phone",)), True) is None
    assert detect(("token",), named(("token",)), 17) is None
    assert detect(("emails",), named(("emails",)), ["somebody"]) is not None


def test_every_kind_has_a_level_and_names() -> None:
    assert {rule.kind for rule in NAME_RULES} == LEVELS.keys() == set(Kind)


def test_names_of_rules_are_words_as_they_are_read() -> None:
    for name in [*NOT_NAMES, *(name for rule in NAME_RULES for name in rule.names())]:
        assert words(name) == name.split(), name


@given(st.lists(st.text(max_size=200), min_size=1, max_size=4))
def test_any_keys_are_read(keys: list[str]) -> None:
    assert named(keys) == named(keys)
