"""URLs of services in the configuration."""

from __future__ import annotations

from urllib.parse import urlsplit


def http_url(url: str) -> str:
    """The URL. Raises ValueError for one that is not whole."""
    try:
        parts = urlsplit(url)
        is_whole = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        is_whole = False
    if not is_whole:
        raise ValueError("not a URL of a service; it looks like http://HOST:PORT")
    return url


def without_credentials(url: str) -> str:
    """The URL. Raises ValueError for one that is not whole, or holds a password."""
    if "@" in urlsplit(http_url(url)).netloc:
        raise ValueError(
            "a URL must not hold a user or a password: what works for a flow is given it in the clear"
        )
    return url
