"""Connections that may carry tokens, passwords and profiles, for HTTP clients."""

from __future__ import annotations

import re
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any

from idgraph.model.errors import ConfigError

if TYPE_CHECKING:
    import ssl

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


def trust(ca_file: Path | None) -> ssl.SSLContext:
    """The authorities of a PEM file, or the system's. Raises ConfigError for a file that cannot be used."""
    # Few who read this module connect.
    import ssl

    try:
        return ssl.create_default_context(cafile=ca_file)
    except OSError as error:
        raise ConfigError(f"ca_file {ca_file}: {type(error).__name__}") from None


def client_options(url: str, ca_file: Path | None = None) -> dict[str, Any]:
    """Options of every httpx client of ours: no redirect, and no proxy or credentials of the environment, which would get the
    token. Raises ConfigError as `trust`."""
    # Reading the system's authorities takes longer than a request; http asks none.
    verify = trust(ca_file) if ca_file or url.lower().startswith("https:") else False
    return {"trust_env": False, "follow_redirects": False, "verify": verify}
