"""ETags and conditional requests (RFC 9110, section 13)."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Depends, Header, Response
from pydantic import BaseModel

from idgraph.web.refusals import PreconditionError

IfMatch = Annotated[str | None, Header(description="Change only if this is still the ETag.")]
IfNoneMatch = Annotated[
    str | None, Header(description="`*` to create only; an ETag to be spared what is known.")
]

Check = Callable[[str | None], None]


def etag_of(body: str | bytes) -> str:
    """A strong ETag: equal bodies have equal tags."""
    return f'"{hashlib.sha256(body.encode() if isinstance(body, str) else body).hexdigest()[:32]}"'


def is_listed(etag: str, header: str | None) -> bool:
    """Whether a list of ETags, or `*`, has this one. Our tags hold no comma."""
    if header is None:
        return False
    tags = [tag.strip().removeprefix("W/") for tag in header.split(",")]
    return "*" in tags or etag in tags


async def _precondition(if_match: IfMatch = None, if_none_match: IfNoneMatch = None) -> Check:
    return precondition(if_match, if_none_match)


def precondition(if_match: str | None, if_none_match: str | None = None) -> Check:
    """The request of these headers."""

    def check(body: str | None) -> None:
        etag = None if body is None else etag_of(body)
        if if_match is not None and (etag is None or not is_listed(etag, if_match)):
            raise PreconditionError("it was changed since it was read; read it again")
        if etag is not None and is_listed(etag, if_none_match):
            raise PreconditionError("it exists already")

    return check


Precondition = Annotated[Check, Depends(_precondition)]
"""A check of a change's headers against the present body (None if there is none). It raises
PreconditionError."""


def created(model: type[BaseModel]) -> dict[int | str, dict[str, Any]]:
    """The description of the answer to a `PUT` that made something new."""
    return {201: {"model": model, "description": "It is new."}}


def json_answer(
    body: str | bytes, if_none_match: str | None = None, status: int = 200, caching: str = "private, no-cache"
) -> Response:
    """A JSON body with its ETag, or 304 if the caller has it."""
    etag = etag_of(body)
    return tagged(etag, None if is_listed(etag, if_none_match) else body, caching, status)


def tagged(etag: str, body: str | bytes | None, caching: str, status: int = 200) -> Response:
    """A JSON body with this ETag; 304 without one."""
    headers = {"ETag": etag, "Cache-Control": caching}
    if body is None:
        return Response(status_code=304, headers=headers)
    return Response(body, status, headers, media_type="application/json")
