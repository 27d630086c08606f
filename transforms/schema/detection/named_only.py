"""What only a name shows: dates of birth, advertising ids, and what somebody is, as gender or religion."""

from __future__ import annotations

from idgraph.model.classification import Classification
from idgraph.model.proposals import SensitiveKind
from transforms.schema.detection.detector import TEXT, TEXT_OR_NUMBER, Detector, NameRule, by_name

_LEVEL = Classification.CONFIDENTIAL

DATE_OF_BIRTH = Detector(
    SensitiveKind.DATE_OF_BIRTH,
    (
        NameRule(
            (
                *("dob", "date of birth", "birth date", "birthdate", "birthday", "birth day", "born"),
                *("dateofbirth", "day of birth", "geburtsdatum", "fecha nacimiento", "birth year"),
                *("year of birth", "born on", "date naissance", "birth dt", "birth"),
            ),
            by_name(SensitiveKind.DATE_OF_BIRTH, _LEVEL, "date of birth"),
            TEXT_OR_NUMBER,
        ),
    ),
    not_names=("place of birth", "city of birth", "country of birth"),
)

ADVERTISING_ID = Detector(
    SensitiveKind.ADVERTISING_ID,
    (
        NameRule(
            (
                *(
                    "advertising id",
                    "advertisingid",
                    "advertising identifier",
                    "ad id",
                    "adid",
                    "ad tracking id",
                ),
                *("idfa", "idfv", "gaid", "aaid", "maid", "rida", "tifa", "roku id", "mobile ad id"),
                *("google ad id", "apple ad id", "ifa", "identifier for advertising"),
            ),
            by_name(SensitiveKind.ADVERTISING_ID, _LEVEL, "advertising id"),
            TEXT,
        ),
    ),
)

DEMOGRAPHIC = Detector(
    SensitiveKind.DEMOGRAPHIC,
    (
        NameRule(
            (
                *("gender", "gender identity", "sex", "sexual orientation", "geschlecht", "pronouns"),
                *("ethnicity", "ethnic group", "ethnic origin", "religion", "religious affiliation"),
                *("marital status", "maritalstatus", "civil status", "political affiliation", "disability"),
            ),
            by_name(SensitiveKind.DEMOGRAPHIC, _LEVEL, "gender, belief, origin or the like"),
            TEXT_OR_NUMBER,
        ),
    ),
)
