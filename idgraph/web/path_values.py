"""Values in the path of a URL, as they were sent: in the decoded path a slash of a value looks like a separator."""

from __future__ import annotations

from urllib.parse import unquote

from fastapi import Request
from starlette.types import Scope

from idgraph.web.refusals import BadQueryError


def keep_slashes(scope: Scope) -> None:
    """Servers decode a URL before it is routed, which makes %2F a separator; where one occurs, routes are matched with the
    URL as it was sent."""
    raw: bytes = (scope.get("raw_path") or scope["path"].encode()).partition(b"?")[0]
    if b"%2f" in raw.lower():
        scope["path"] = raw.decode("ascii")


def path_value(request: Request, place: int) -> str:
    """A part of the path, counted from 1 (`v1` is the first), decoded once. Raises BadQueryError for text that is not UTF-8."""
    return decoded(request.scope["raw_path"].split(b"/")[place])


def decoded(part: bytes) -> str:
    """A part of a path as it was sent, decoded. Raises BadQueryError for text that is not UTF-8."""
    try:
        return unquote(part.decode("ascii"), errors="strict")
    except UnicodeDecodeError:
        raise BadQueryError("the path is not UTF-8, percent-encoded") from None
