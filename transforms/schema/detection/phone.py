"""Telephone numbers: valid ones of any country in international form, of North America as written there."""

from __future__ import annotations

import re

from idgraph.model.classification import Classification
from idgraph.model.proposals import Proposal, SensitiveKind
from transforms.schema.detection.detector import TEXT_OR_NUMBER, Detector, NameRule, by_name, by_value

_KIND, _LEVEL = SensitiveKind.PHONE, Classification.CONFIDENTIAL
_NAMED = by_name(_KIND, _LEVEL, "telephone number")
_INTERNATIONAL = by_value(_KIND, _LEVEL, "the form of a valid international telephone number", 0.95)
_NATIONAL = by_value(_KIND, _LEVEL, "the form of a North American telephone number", 0.7)

_SHORTEST, _LONGEST = 8, 26
_INTERNATIONAL_SHAPE = re.compile(r"(?:\+|00)[1-9][\d ().\-/]{6,22}\d", re.ASCII)
_AMERICAN_SHAPE = re.compile(r"(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d[ .-])[2-9]\d\d[ .-]\d{4}", re.ASCII)


def telephone_number(text: str) -> Proposal | None:
    """A text that is one telephone number."""
    if not _SHORTEST <= len(text) <= _LONGEST:
        return None
    text = text.strip()
    if _INTERNATIONAL_SHAPE.fullmatch(text):
        return _INTERNATIONAL if _is_valid("+" + text.removeprefix("00").removeprefix("+"), None) else None
    return _NATIONAL if _AMERICAN_SHAPE.fullmatch(text) and _is_valid(text, "US") else None


def _is_valid(text: str, region: str | None) -> bool:
    # Late: its tables take a command longer to load than most of its work.
    import phonenumbers

    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(text, region))
    except phonenumbers.NumberParseException:
        return False


DETECTOR = Detector(
    _KIND,
    (
        NameRule(
            (
                *("phone", "telephone", "phone number", "phonenumber", "telephone number", "tel", "mobile"),
                *("mobile number", "cell phone", "cellphone", "msisdn", "fax", "fax number", "telefon"),
                *("phone no", "contact number", "callback number"),
            ),
            _NAMED,
            TEXT_OR_NUMBER,
        ),
    ),
    telephone_number,
)
