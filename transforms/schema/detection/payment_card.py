"""Payment card numbers: a known issuer's first digits, its length, and the Luhn check digit (ISO/IEC 7812)."""

from __future__ import annotations

import re

from idgraph.model.classification import Classification
from idgraph.model.proposals import Proposal, SensitiveKind
from transforms.schema.detection.detector import TEXT_OR_NUMBER, Detector, NameRule, by_name, by_value

_KIND, _LEVEL = SensitiveKind.PAYMENT_CARD, Classification.RESTRICTED
_NAMED = by_name(_KIND, _LEVEL, "payment card")
_GROUPED = by_value(_KIND, _LEVEL, "the digits of a payment card in groups, with its check digit", 0.97)
_BARE = by_value(_KIND, _LEVEL, "the digits of a payment card, with its check digit", 0.8)

_SHORTEST = 14
# Runs of digits, or groups of them as cards print them; not a part of a longer number or of a word.
_CANDIDATE = re.compile(
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
    if len(text) < _SHORTEST:
        return None
    found: Proposal | None = None
    for candidate in _CANDIDATE.finditer(text):
        digits = candidate[0].replace(" ", "").replace("-", "")
        if _ISSUER.fullmatch(digits) and _has_check_digit(digits):
            if len(digits) < len(candidate[0]):
                return _GROUPED
            found = _BARE
    return found


def _has_check_digit(digits: str) -> bool:
    from stdnum import luhn

    return luhn.is_valid(digits)


DETECTOR = Detector(
    _KIND,
    (
        NameRule(
            (
                *("card number", "credit card", "creditcard", "credit card number", "cc number", "ccnum"),
                *("card no", "pan", "debit card", "cardnumber", "cvv", "cvc", "card verification code"),
            ),
            _NAMED,
            TEXT_OR_NUMBER,
        ),
    ),
    card_number,
)
