"""IP addresses of either version, with or without a port or a prefix length; they single out a household."""

from __future__ import annotations

import re
from ipaddress import ip_address

from idgraph.model.classification import Classification
from idgraph.model.proposals import Proposal, SensitiveKind
from transforms.schema.detection.detector import TEXT, Detector, NameRule, by_name, by_value

_KIND, _LEVEL = SensitiveKind.IP_ADDRESS, Classification.CONFIDENTIAL
_NAMED = by_name(_KIND, _LEVEL, "IP address")
_PUBLIC = by_value(_KIND, _LEVEL, "the form of an IP address", 0.9)
_LOCAL = by_value(_KIND, _LEVEL, "the form of an IP address of a private network", 0.6)

_LONGEST = 49
_OCTET = r"(?:25[0-5]|2[0-4]\d|1?\d?\d)"
_VERSION_4 = re.compile(rf"((?:{_OCTET}\.){{3}}{_OCTET})(?:[:/]\d{{1,5}})?", re.ASCII)
_VERSION_6 = re.compile(
    r"\[?([0-9a-f:]{2,39}(?:(?:\d{1,3}\.){3}\d{1,3})?)(?:%\w{1,15})?\]?(?:[:/]\d{1,5})?", re.I
)


def internet_address(text: str) -> Proposal | None:
    """A text that is one IP address. Not the loopback, nor the address that means none."""
    if not 2 < len(text) <= _LONGEST:
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


DETECTOR = Detector(
    _KIND,
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
            _NAMED,
            TEXT,
        ),
    ),
    internet_address,
    needs_digit=False,
)
