"""Detectors of places: IP addresses, which single out a household, and coordinates."""

from __future__ import annotations

import re
from ipaddress import ip_address

from idgraph.model.classification import Proposal, SensitiveKind
from transforms.schema.detection.kinds import by_value

_PUBLIC = by_value(SensitiveKind.IP_ADDRESS, "the form of an IP address", 0.9)
_LOCAL = by_value(SensitiveKind.IP_ADDRESS, "the form of an IP address of a private network", 0.6)

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


_PLACE_SHAPED = by_value(SensitiveKind.GEOLOCATION, "the form of a pair of coordinates", 0.8)

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
