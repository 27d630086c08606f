"""Dates of birth, by name: a date does not show what happened then."""

from __future__ import annotations

from idgraph.model.classification import Classification
from idgraph.model.proposals import SensitiveKind
from transforms.schema.detection.detector import TEXT_OR_NUMBER, Detector, NameRule, by_name

_KIND = SensitiveKind.DATE_OF_BIRTH
_NAMED = by_name(_KIND, Classification.CONFIDENTIAL, "date of birth")

DETECTOR = Detector(
    _KIND,
    (
        NameRule(
            (
                *("dob", "date of birth", "birth date", "birthdate", "birthday", "birth day", "born"),
                *("dateofbirth", "day of birth", "geburtsdatum", "fecha nacimiento", "birth year"),
                *("year of birth", "born on", "date naissance", "birth dt"),
            ),
            _NAMED,
            TEXT_OR_NUMBER,
        ),
    ),
)
