"""National identity numbers that report themselves by their form, with the checksums of their country.

Numbers that are digits only and have a weak checksum or none (the Dutch BSN, the Polish PESEL, an American
number without hyphens) are reported by name alone: one ordinary id in eleven would pass for one.
"""

from __future__ import annotations

import re
from importlib import import_module
from typing import NamedTuple

from idgraph.model.classification import Classification
from idgraph.model.proposals import Proposal, SensitiveKind
from transforms.schema.detection.detector import TEXT_OR_NUMBER, Detector, NameRule, by_name, by_value

_KIND, _LEVEL = SensitiveKind.NATIONAL_ID, Classification.RESTRICTED
_NAMED = by_name(_KIND, _LEVEL, "national identity number")

_SHORTEST, _LONGEST = 9, 21


class NationalNumber(NamedTuple):
    """How one country writes a number that can be determined by its form."""

    country: str
    shape: re.Pattern[str]
    module: str
    """Of python-stdnum: checks form, dates and checksum. Loaded when a text has the shape."""
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
        by_value(_KIND, _LEVEL, f"the form of a national identity number of {each.country}", each.confidence),
    )
    for each in NUMBERS
)


def national_number(text: str) -> Proposal | None:
    """A text that is one national identity number: the proposal of the surest country."""
    if not _SHORTEST <= len(text) <= _LONGEST:
        return None
    found: Proposal | None = None
    for number, proposal in _FOUND:
        if number.shape.fullmatch(text) and number.is_valid(text) and proposal.is_stronger(found):
            found = proposal
    return found


DETECTOR = Detector(
    _KIND,
    (
        NameRule(
            (
                *("ssn", "social security number", "social security", "soc sec id", "national id", "nino"),
                *("national insurance number", "national identity number", "passport number", "passport"),
                *("passport no", "tax id", "tax number", "taxpayer id", "dni", "nif", "nie", "cpf", "bsn"),
                *("pesel", "aadhaar", "personnummer", "codice fiscale", "driver license number", "curp"),
                *("drivers license", "driving licence", "identity card number", "nhs number", "ahv number"),
                *("tax file number", "steuer id", "nir", "insee number", "rrn", "sin number", "hetu"),
            ),
            _NAMED,
            TEXT_OR_NUMBER,
        ),
    ),
    national_number,
)
