"""JSON pointers (RFC 6901) into a spec, and hints for names that are almost right."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches


def pointer(*keys: str | int) -> str:
    """Keys to pointer: `pointer("a/b", 0)` is `/a~1b/0`."""
    return "".join("/" + str(key).replace("~", "~0").replace("/", "~1") for key in keys)


def nearest(name: str, known: Iterable[str]) -> str | None:
    """`did you mean 'shift'?` if a known name is close, else None."""
    close = get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"did you mean '{close[0]}'?" if close else None
