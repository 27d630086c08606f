"""The layer before every route: who calls, whether the caller may, how often, and how large the body is.

It stands outside the application because FastAPI reads a whole body before it runs a dependency.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from fastapi import Response
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from idgraph.model.errors import IdgraphError
from idgraph.web.limits import RateLimit, Turn, address_of, charged_by
from idgraph.web.openid import is_signed_token
from idgraph.web.path_values import keep_slashes
from idgraph.web.problems import problem, too_many, unavailable
from idgraph.web.refusals import RateError

WRONG_TOKEN_SECONDS = 1.0
"""Seconds for which an address waits for the answer to a wrong token, after many of them."""

REST_SECONDS, REST_BYTES = 2.0, 1 << 20
"""Seconds, and bytes, of an unread body that are waited for before a refusal."""

MARKS = ((b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store"))
"""Headers of each answer that does not have its own."""

READING = frozenset({"GET", "HEAD", "OPTIONS"})


class NamedCaller(Protocol):
    """The fields of every caller."""

    @property
    def name(self) -> str: ...
    @property
    def role(self) -> Any: ...


class Access(NamedTuple):
    """The callers of a service.

    `authenticate` returns the caller of a token, None for one that is unknown, revoked or expired. It may block, and
    raises IdgraphError, or an error that `answer` answers, where it cannot know. `permits` gets caller, method and
    path; it may block and raise the latter too. Paths in `free` need no token.
    """

    authenticate: Callable[[str], NamedCaller | None]
    permits: Callable[[Any, str, str], bool]
    free: frozenset[str]
    max_body_bytes: int
    rate: RateLimit | None = None
    refused: Callable[[Any, str, str], None] | None = None
    """Is given each call, as `permits`, that the caller may not make. May block, and raise as `permits`."""
    charged: Callable[[Any], str] = lambda caller: str(caller.name)
    """One name for all that share a rate limit with this caller."""
    answer: Callable[[Exception], Response | None] = lambda _: None
    """The answer to an error of these functions; None for one that is raised."""
    blocks: bool = True
    """Whether the two may block; otherwise they are called on the event loop, but `authenticate` for tokens of an issuer."""


async def _drained(receive: Receive, most: int) -> None:
    """Raises TimeoutError for a body that is longer."""
    while most >= 0:
        message = await receive()
        most -= len(message.get("body", b""))
        if message["type"] != "http.request" or not message.get("more_body", False):
            return
    raise TimeoutError


def at_once(access: Access, token: str, method: str, path: str) -> tuple[NamedCaller, Turn | None] | None:
    """The caller of a call without a body that may be made now, and its turn; None where the guard must see it: it waits, or is
    refused. Raises as they do."""
    if access.blocks or is_signed_token(token):
        return None
    caller = access.authenticate(token)
    if caller is None or not access.permits(caller, method, path):
        return None
    if access.rate is None:
        return caller, None
    turn = access.rate.take(access.charged(caller))
    return (caller, turn) if turn.is_granted else None


class Guard:
    """ASGI middleware that lets callers in by an `Access`, and marks each answer as not to be sniffed."""

    def __init__(self, app: ASGIApp, access: Access, title: str) -> None:
        self._app = app
        self._access = access
        self._wrong = RateLimit(per_second=1, burst=20)
        self._challenge = f'Bearer realm="idgraph {title}"'

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        keep_slashes(scope)
        turn: Turn | None = None

        async def marking(message: Message) -> None:
            if message["type"] == "http.response.start":
                names = {name for name, _ in message["headers"]}
                added = [each for each in MARKS if each[0] not in names]
                message["headers"] = [*message["headers"], *added, *(turn.headers() if turn else ())]
            await send(message)

        if scope["path"] in self._access.free:
            return await self._app(scope, receive, marking)
        try:
            caller = await self._caller(Headers(scope=scope), address_of(scope.get("client")))
            if isinstance(caller, Response):
                return await self._refuse(caller, scope, receive, marking)
            scope.setdefault("state", {})["caller"] = caller
            if (rate := self._access.rate) is not None:
                name = self._access.charged(caller)
                turn = rate.take(name)

                def charge(requests: int) -> None:
                    nonlocal turn
                    turn = rate.charge(name, requests)
                    if not turn.is_granted:
                        raise RateError(turn.reset_seconds)

                charged_by(charge)
            if self._access.blocks:
                refusal = await run_in_threadpool(self._refusal, scope, caller, turn)
            else:
                refusal = self._refusal(scope, caller, turn)
            if refusal is not None and refusal.status_code == 403 and self._access.refused is not None:
                await run_in_threadpool(self._access.refused, caller, scope["method"], scope["path"])
        except Exception as error:
            refusal = self._access.answer(error)
            if refusal is None:
                raise
        if refusal is not None:
            return await self._refuse(refusal, scope, receive, marking)
        return await self._app(scope, self._bounded(receive), marking)

    async def _refuse(self, refusal: Response, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request whose body nobody reads. A client that has not sent it by then is not waited for: its connection is
        closed."""
        try:
            async with asyncio.timeout(REST_SECONDS):
                await _drained(receive, REST_BYTES)
        except TimeoutError:
            refusal.headers["Connection"] = "close"
        await refusal(scope, receive, send)

    async def _caller(self, headers: Headers, address: str) -> NamedCaller | Response:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token.strip():
            return problem(401, "no-token", "a bearer token is needed", {"WWW-Authenticate": self._challenge})
        authenticate = self._access.authenticate
        try:
            if self._access.blocks or is_signed_token(token.strip()):
                caller = await run_in_threadpool(authenticate, token.strip())
            else:
                caller = authenticate(token.strip())
        except IdgraphError as error:
            return unavailable("callers", str(error))
        if caller is None:
            turn = self._wrong.take(address)
            if not turn.is_granted:
                # Slower, and without keeping a thread: whoever tries tokens waits.
                await asyncio.sleep(WRONG_TOKEN_SECONDS)
            challenge = {"WWW-Authenticate": f'{self._challenge}, error="invalid_token"'}
            return problem(401, "bad-token", "the token is unknown, revoked or expired", challenge)
        return caller

    def _refusal(self, scope: Scope, caller: NamedCaller, turn: Turn | None) -> Response | None:
        if turn is not None and not turn.is_granted:
            return too_many(RateError(turn.reset_seconds))
        if not self._access.permits(caller, scope["method"], scope["path"]):
            return problem(403, "role", f"the role {caller.role} may not do this")
        length = Headers(scope=scope).get("content-length", "0")
        if not length.isdecimal() or int(length) > self._access.max_body_bytes:
            return problem(413, "too-large", f"a body has at most {self._access.max_body_bytes} bytes")
        return None

    def _bounded(self, receive: Receive) -> Receive:
        left = self._access.max_body_bytes

        async def bounded() -> Message:
            nonlocal left
            message = await receive()
            left -= len(message.get("body", b""))
            if left < 0:  # chunked: no length was announced
                raise HTTPException(413, f"a body has at most {self._access.max_body_bytes} bytes")
            return message

        return bounded
