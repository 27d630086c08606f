"""Which connections may carry tokens, passwords and profiles."""

from __future__ import annotations

import re
from ipaddress import ip_address

_URL = re.compile(r"(https?)://(?:[^/?#@]*@)?(?:\[([^\]/?#]*)\]|([^:/?#]*))", re.IGNORECASE)

PLAIN_HTTP = (
    "plain HTTP beyond this machine shows tokens and profiles to everybody in between: use https, or set "
    "`allow_plain_http = true` where something else encrypts"
)


def is_private(url: str) -> bool:
    """Whether what is sent to a URL is encrypted, or stays on this machine."""
    parts = _URL.match(url)
    return parts is not None and (parts[1].lower() == "https" or is_loopback(parts[2] or parts[3] or ""))


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, seen by nobody else."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def require_private(url: str, is_allowed: bool) -> None:
    """Raises ValueError for a URL that is neither private nor allowed."""
    if not (is_allowed or is_private(url)):
        raise ValueError(PLAIN_HTTP)
