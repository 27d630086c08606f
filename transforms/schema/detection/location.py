"""Detectors of places: IP addresses, which single out a household, and coordinates."""

from __future__ import annotations

import re
from ipaddress import ip_address

from idgraph.model.classification import Classification, Proposal, SensitiveKind
from transforms.schema.detection.detector import TEXT, TEXT_OR_NUMBER, Detector, NameRule, by_name, by_value

_IP_KIND, _IP_LEVEL = SensitiveKind.IP_ADDRESS, Classification.CONFIDENTIAL
_IP_NAMED = by_name(_IP_KIND, _IP_LEVEL, "IP address")
_PUBLIC = by_value(_IP_KIND, _IP_LEVEL, "the form of an IP address", 0.9)
_LOCAL = by_value(_IP_KIND, _IP_LEVEL, "the form of an IP address of a private network", 0.6)

_IP_LONGEST = 49
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_VERSION_4 = re.compile(rf"((?:{_OCTET}\.){{3}}{_OCTET})(?:[:/]\d{{1,5}})?", re.ASCII)
_VERSION_6 = re.compile(
    r"\[?([0-9a-f:]{2,39}(?:(?:\d{1,3}\.){3}\d{1,3})?)(?:%\w{1,15})?\]?(?:[:/]\d{1,5})?", re.I
)


def internet_address(text: str) -> Proposal | None:
    """A text that is one IP address. Not the loopback, nor the address that means none."""
    if not 2 < len(text) <= _IP_LONGEST:
        return None
    found = _VERSION_4.fullmatch(text)
    if found is None and text.count(":") > 1:
        found = _VERSION_6.fullmatch(text)
    if found is None:
        return None
    try:
        address = ip_address(found[1])
    except ValueError:
        return None
    if address.is_loopback or address.is_unspecified:
        return None
    return _LOCAL if address.is_private else _PUBLIC


IP = Detector(
    _IP_KIND,
    (
        NameRule(
            (
                *("ip", "ip address", "ipaddress", "ip addr", "ipaddr", "client ip", "remote addr", "ipv"),
                *(
                    "remote address",
                    "srcaddr",
                    "dstaddr",
                    "src addr",
                    "dst addr",
                    "remote ip",
                    "remoteip",
                    "aip",
                ),
                *("sourceip", "source ip", "destination ip", "x forwarded for", "external ip"),
            ),
            _IP_NAMED,
            TEXT,
        ),
    ),
    internet_address,
    needs_digit=False,
)


_PLACE_KIND, _PLACE_LEVEL = SensitiveKind.GEOLOCATION, Classification.CONFIDENTIAL
_PLACE_NAMED = by_name(_PLACE_KIND, _PLACE_LEVEL, "geographic coordinate")
_PLACE_SHAPED = by_value(_PLACE_KIND, _PLACE_LEVEL, "the form of a pair of coordinates", 0.8)

_PLACE_SHORTEST, _PLACE_LONGEST = 11, 60
# At least three decimals each, which is a hundred metres: two small numbers are no place.
_PAIR = re.compile(
    r"(?:geo:|POINT ?)?\(?\s*([-+]?\d{1,3}\.\d{3,15})\s*[,; ]\s*([-+]?\d{1,3}\.\d{3,15})\s*\)?", re.ASCII
)


def coordinates(text: str) -> Proposal | None:
    """A text that is a latitude and a longitude, in either order."""
    if not _PLACE_SHORTEST <= len(text) <= _PLACE_LONGEST:
        return None
    found = _PAIR.fullmatch(text)
    if found is None:
        return None
    smaller, larger = sorted(abs(float(number)) for number in found.groups())
    return _PLACE_SHAPED if smaller <= 90 and larger <= 180 else None


PLACE = Detector(
    _PLACE_KIND,
    (
        NameRule(
            (
                *("lat", "latitude", "lng", "lon", "longitude", "geo point", "geopoint", "coordinate"),
                *("lat lng", "lat lon", "latlng", "gps", "geolocation", "geo location", "geo coordinate"),
                *("location loc", "geo loc"),
            ),
            _PLACE_NAMED,
            TEXT_OR_NUMBER,
        ),
    ),
    coordinates,
    not_names=("maven coordinate",),
)
