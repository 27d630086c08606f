"""Detectors of numbers that an authority or a bank issues, by form and check digit.

National identity numbers of digits only with a weak checksum or none (the Dutch BSN, the Polish PESEL, an American
number without hyphens) are detected by name alone: one ordinary id in eleven would pass for one.

Payment card numbers: a known issuer's first digits, its length, and the Luhn check digit (ISO/IEC 7812).

Bank accounts: IBANs by their check digits and their country's form (ISO 13616); others by name.
"""

from __future__ import annotations

import re
from functools import cache
from importlib import import_module
from itertools import accumulate
from typing import NamedTuple

from idgraph.model.classification import Proposal, SensitiveKind
from transforms.schema.detection.kinds import by_value

_NATIONAL_ID_SHORTEST, _NATIONAL_ID_LONGEST = 9, 21


class NationalNumber(NamedTuple):
    """One country's form of a number that can be recognised by its form."""

    country: str
    shape: re.Pattern[str]
    module: str
    """A module of python-stdnum: checks form, dates and checksum. Loaded when a text has the shape."""
    confidence: float

    def is_valid(self, text: str) -> bool:
        """Whether a text of this shape is such a number."""
        return bool(import_module(f"stdnum.{self.module}").is_valid(text))


def _number(country: str, shape: str, module: str, confidence: float) -> NationalNumber:
    return NationalNumber(country, re.compile(shape, re.ASCII | re.IGNORECASE), module, confidence)


NUMBERS = (
    _number("Brazil", r"\d{3}\.\d{3}\.\d{3}-\d\d", "br.cpf", 0.95),
    _number("Canada", r"\d{3}([ -])\d{3}\1\d{3}", "ca.sin", 0.6),
    _number("China", r"\d{17}[\dX]", "cn.ric", 0.95),
    _number("Finland", r"\d{6}[-+A-FU-Y]\d{3}[0-9A-Y]", "fi.hetu", 0.9),
    _number("France", r"[1278] ?\d\d ?\d\d ?\d[\dAB] ?\d{3} ?\d{3} ?\d\d", "fr.nir", 0.9),
    _number("India", r"\d{4}([ -])\d{4}\1\d{4}", "in_.aadhaar", 0.8),
    _number(
        "Italy", r"[A-Z]{6}[\dL-NP-V]{2}[A-Z][\dL-NP-V]{2}[A-Z][\dL-NP-V]{3}[A-Z]", "it.codicefiscale", 0.97
    ),
    _number("Korea", r"\d{6}-\d{7}", "kr.rrn", 0.9),
    _number("Mexico", r"[A-Z]{4}\d{6}[HMX][A-Z]{5}[A-Z0-9]\d", "mx.curp", 0.97),
    _number("Spain", r"\d{8}[ -]?[A-Z]", "es.dni", 0.7),
    _number("Spain", r"[XYZ][ -]?\d{7}[ -]?[A-Z]", "es.nie", 0.8),
    _number("Sweden", r"(?:\d\d)?\d{6}[-+]\d{4}", "se.personnummer", 0.8),
    _number("Switzerland", r"756\.\d{4}\.\d{4}\.\d\d", "ch.ssn", 0.97),
    _number("the United States", r"\d{3}-\d\d-\d{4}", "us.ssn", 0.7),
)
"""The numbers that are looked for."""

_FOUND = tuple(
    (
        each,
        by_value(
            SensitiveKind.NATIONAL_ID,
            f"the form of a national identity number of {each.country}",
            each.confidence,
        ),
    )
    for each in NUMBERS
)


def national_number(text: str) -> Proposal | None:
    """A text that is one national identity number: the proposal of the surest country."""
    if not _NATIONAL_ID_SHORTEST <= len(text) <= _NATIONAL_ID_LONGEST:
        return None
    found: Proposal | None = None
    for number, proposal in _FOUND:
        if number.shape.fullmatch(text) and number.is_valid(text) and proposal.is_stronger(found):
            found = proposal
    return found


_GROUPED = by_value(
    SensitiveKind.PAYMENT_CARD, "the digits of a payment card in groups, with its check digit", 0.97
)
_BARE = by_value(SensitiveKind.PAYMENT_CARD, "the digits of a payment card, with its check digit", 0.8)

_CARD_SHORTEST = 14
# Runs of digits, or groups of them as cards print them; not a part of a longer number or of a word.
_CARD_CANDIDATE = re.compile(
    r"(?<![\w.-])(?:\d{14,16}|\d{4}([ -])\d{4}\1\d{4}\1\d{4}|\d{4}([ -])\d{6}\2\d{4,5})(?![\w-]|\.\d)",
    re.ASCII,
)
_ISSUER = re.compile(
    r"4\d{15}"  # Visa
    r"|(?:5[1-5]\d\d|222[1-9]|22[3-9]\d|2[3-6]\d\d|27[01]\d|2720)\d{12}"  # Mastercard
    r"|3[47]\d{13}"  # American Express
    r"|3(?:0[0-5]|[68]\d)\d{11}"  # Diners Club
    r"|(?:6011|65\d\d|64[4-9]\d)\d{12}"  # Discover
    r"|35(?:2[89]|[3-8]\d)\d{12}"  # JCB
    r"|62\d{14}",  # UnionPay
    re.ASCII,
)


def card_number(text: str) -> Proposal | None:
    """A text that holds a payment card number."""
    if len(text) < _CARD_SHORTEST:
        return None
    found: Proposal | None = None
    for candidate in _CARD_CANDIDATE.finditer(text):
        digits = candidate[0].replace(" ", "").replace("-", "")
        if _ISSUER.fullmatch(digits) and _has_check_digit(digits):
            if len(digits) < len(candidate[0]):
                return _GROUPED
            found = _BARE
    return found


def _has_check_digit(digits: str) -> bool:
    from stdnum import luhn

    return luhn.is_valid(digits)


_ACCOUNT_SHAPED = by_value(SensitiveKind.BANK_ACCOUNT, "the form of an IBAN, with its check digits", 0.98)

_ACCOUNT_SHORTEST = 15
_ACCOUNT_CANDIDATE = re.compile(r"(?<![^\W_])[A-Z]{2}\d{2}(?: ?[A-Z0-9]){11,30}(?![^\W_])", re.ASCII)


def international_account(text: str) -> Proposal | None:
    """A text that holds an IBAN."""
    if len(text) < _ACCOUNT_SHORTEST:
        return None
    for candidate in _ACCOUNT_CANDIDATE.finditer(text):
        # In a sentence the words behind an IBAN look like groups of it: the country's length decides.
        groups = candidate[0].split(" ")
        length = _length(groups[0][:2])
        if length in accumulate(map(len, groups)) and _has_check_digits("".join(groups)[:length]):
            return _ACCOUNT_SHAPED
    return None


@cache
def _length(country: str) -> int:
    """Characters of an IBAN of a country, 0 where it has none. `country` is two letters."""
    from stdnum import numdb

    structure = numdb.get("iban").info(country)[0][1].get("bban", "")
    return sum(map(int, re.findall(r"\d+", structure)), len("GB00")) if structure else 0


def _has_check_digits(account: str) -> bool:
    from stdnum import iban

    return iban.is_valid(account)
