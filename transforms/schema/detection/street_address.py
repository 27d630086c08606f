"""Street addresses: number and street as several languages write them; parts of an address by name."""

from __future__ import annotations

import re

from idgraph.model.classification import Classification
from idgraph.model.proposals import Proposal, SensitiveKind
from transforms.schema.detection.detector import TEXT, TEXT_OR_NUMBER, Detector, NameRule, by_name, by_value

_KIND, _LEVEL = SensitiveKind.STREET_ADDRESS, Classification.CONFIDENTIAL
_NAMED = by_name(_KIND, _LEVEL, "street address")
_PART = by_name(_KIND, _LEVEL, "a part of an address", 0.6)
_SHAPED = by_value(_KIND, _LEVEL, "the form of a street with its number", 0.75)

_SHORTEST, _LONGEST = 6, 300
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
    if not _SHORTEST <= len(text) <= _LONGEST or " " not in text:
        return None
    return _SHAPED if _STREET.match(text.lstrip()) else None


DETECTOR = Detector(
    _KIND,
    (
        NameRule(
            (
                *("street", "street address", "address line", "street name", "postal address", "addr line"),
                *("home address", "mailing address", "shipping address", "billing address", "line address"),
                *("address street", "address line one", "residence", "strasse", "adresse", "direccion"),
                *("shipping line", "billing line", "delivery address", "house number", "street number"),
            ),
            _NAMED,
            TEXT_OR_NUMBER,
        ),
        NameRule(("postcode", "postal code", "zip code", "zipcode", "zip", "plz"), _PART, TEXT_OR_NUMBER),
        NameRule(("person address", "customer address", "user address", "suburb"), _PART, TEXT),
    ),
    street,
)
