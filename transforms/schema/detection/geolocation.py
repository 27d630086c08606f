"""Where somebody is: pairs of coordinates by form, one coordinate by name."""

from __future__ import annotations

import re

from idgraph.model.classification import Classification
from idgraph.model.proposals import Proposal, SensitiveKind
from transforms.schema.detection.detector import TEXT_OR_NUMBER, Detector, NameRule, by_name, by_value

_KIND, _LEVEL = SensitiveKind.GEOLOCATION, Classification.CONFIDENTIAL
_NAMED = by_name(_KIND, _LEVEL, "geographic coordinate")
_SHAPED = by_value(_KIND, _LEVEL, "the form of a pair of coordinates", 0.8)

_SHORTEST, _LONGEST = 11, 60
# At least three decimals each, which is a hundred metres: two small numbers are no place.
_PAIR = re.compile(
    r"(?:geo:|POINT ?)?\(?\s*([-+]?\d{1,3}\.\d{3,15})\s*[,; ]\s*([-+]?\d{1,3}\.\d{3,15})\s*\)?", re.ASCII
)


def coordinates(text: str) -> Proposal | None:
    """A text that is a latitude and a longitude, in either order."""
    if not _SHORTEST <= len(text) <= _LONGEST:
        return None
    found = _PAIR.fullmatch(text)
    if found is None:
        return None
    smaller, larger = sorted(abs(float(number)) for number in found.groups())
    return _SHAPED if smaller <= 90 and larger <= 180 else None


DETECTOR = Detector(
    _KIND,
    (
        NameRule(
            (
                *("lat", "latitude", "lng", "lon", "longitude", "geo point", "geopoint", "coordinate"),
                *("lat lng", "lat lon", "latlng", "gps", "geolocation", "geo location", "geo coordinate"),
                *("location loc", "geo loc"),
            ),
            _NAMED,
            TEXT_OR_NUMBER,
        ),
    ),
    coordinates,
    not_names=("maven coordinate",),
)
