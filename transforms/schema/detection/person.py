"""Detectors of a person's contact data and date of birth."""

from __future__ import annotations

import re

from idgraph.model.classification import Proposal, SensitiveKind
from transforms.schema.detection.kinds import by_value

_EMAIL_SHAPED = by_value(SensitiveKind.EMAIL, "the shape of an e-mail address", 0.95)

# Matched around each `@` and bounded, so that the cost is linear in the text. Any character that is no letter may
# follow: keys, ids and file names append dates and numbers to addresses.
_BEFORE = re.compile(r"[\w.!#$%&'*+/=?^`{|}~-]")
_AFTER = re.compile(r"(?:[^\W_](?:[\w-]{0,61}[^\W_])?\.){1,8}[^\W\d_]{2,24}(?![^\W\d_])")


def email_address(text: str) -> Proposal | None:
    """A text that holds an e-mail address, as one might write it to, or as it stands in a URL."""
    return _EMAIL_SHAPED if _stands_around("@", text) or _stands_around("%40", text) else None


def _stands_around(sign: str, text: str) -> bool:
    at = text.find(sign)
    while at >= 0:
        if at and _BEFORE.match(text, at - 1) and _AFTER.match(text, at + len(sign)):
            return True
        at = text.find(sign, at + 1)
    return False


_PHONE_INTERNATIONAL = by_value(
    SensitiveKind.PHONE, "the form of a valid international telephone number", 0.95
)
_PHONE_NATIONAL = by_value(SensitiveKind.PHONE, "the form of a North American telephone number", 0.7)

_PHONE_SHORTEST, _PHONE_LONGEST = 8, 26
_PHONE_INTERNATIONAL_SHAPE = re.compile(r"(?:\+|00)[1-9][\d ().\-/]{6,22}\d", re.ASCII)
_PHONE_AMERICAN_SHAPE = re.compile(
    r"(?:1[ .-])?(?:\([2-9]\d\d\) ?|[2-9]\d\d[ .-])[2-9]\d\d[ .-]\d{4}", re.ASCII
)


def telephone_number(text: str) -> Proposal | None:
    """A text that is one telephone number."""
    if not _PHONE_SHORTEST <= len(text) <= _PHONE_LONGEST:
        return None
    text = text.strip()
    if _PHONE_INTERNATIONAL_SHAPE.fullmatch(text):
        return (
            _PHONE_INTERNATIONAL if _is_valid("+" + text.removeprefix("00").removeprefix("+"), None) else None
        )
    return _PHONE_NATIONAL if _PHONE_AMERICAN_SHAPE.fullmatch(text) and _is_valid(text, "US") else None


def _is_valid(text: str, region: str | None) -> bool:
    # Late: its tables take a command longer to load than most of its work.
    import phonenumbers

    try:
        return phonenumbers.is_valid_number(phonenumbers.parse(text, region))
    except phonenumbers.NumberParseException:
        return False


_STREET_SHAPED = by_value(SensitiveKind.STREET_ADDRESS, "the form of a street with its number", 0.75)

_STREET_SHORTEST, _STREET_LONGEST = 6, 300
_WORD = r"[^\W\d_][\w'.-]{0,30}"
_ENGLISH = (
    r"street|st|avenue|ave|road|rd|boulevard|blvd|lane|ln|drive|dr|court|ct|crescent|cres|circuit|place|pl|"
    r"square|sq|terrace|tce|highway|hwy|parkway|pkwy|close|way|row|trail"
)
_STREET = re.compile(
    rf"(?:(?:unit|flat|apt)\.? \w{{1,5}},? )?\d{{1,5}}[a-z]?(?:/\d{{1,5}})?,? (?:{_WORD} ){{1,4}}(?:{_ENGLISH})\b"
    rf"|\d{{1,5}} (?:{_WORD} ){{1,4}}(?:apt|apartment|suite|ste|unit|flat)\.? \w{{1,5}}\b"
    rf"|{_WORD}(?:stra(?:ss|ß)e|str\.|weg|platz|gasse|allee|straat|laan|gatan|vägen) ?\d{{1,4}}"
    rf"|\d{{1,4}},? (?:bis |ter )?(?:rue|avenue|boulevard|chemin|impasse|quai) {_WORD}"
    rf"|(?:calle|avenida|via|viale|piazza|rua) (?:{_WORD},? ){{1,4}}\d{{1,4}}\b",
    re.IGNORECASE,
)


def street(text: str) -> Proposal | None:
    """A text that begins with a street and its number."""
    if not _STREET_SHORTEST <= len(text) <= _STREET_LONGEST or " " not in text:
        return None
    return _STREET_SHAPED if _STREET.match(text.lstrip()) else None
