"""The two clients: blocking, and for asyncio."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

import httpx

from idgraph.client.methods import Follow, Methods, Request, T, path_of
from idgraph.model import canonical
from idgraph.model.backoff import Backoff
from idgraph.model.callers import is_fresh_session
from idgraph.model.errors import ConfigError, ProfileServiceError, first_few
from idgraph.model.transport import PLAIN_HTTP, client_options, is_private

log = logging.getLogger("idgraph.client")

MOST_TRIES = 4
PAUSES = Backoff(retries=MOST_TRIES - 1, base=0.6, cap=10.0, least=2 / 3)
_RETRIED = (429, 503)


class _Calls(Methods):
    """The requests of both clients, and the meaning of their answers."""

    def __init__(
        self,
        url: str,
        token: str,
        timeout_seconds: float = 10.0,
        *,
        ca_file: Path | None = None,
        allow_plain_http: bool = False,
        connect_seconds: float | None = None,
        warn: Callable[[str], None] = log.warning,
    ) -> None:
        """`ca_file`: trusted authorities as PEM, instead of the system's. With `connect_seconds` somebody
        waits for the answer: a service that is not reached by then, or does not answer in time, is not tried
        again. `warn` is given the warnings of searches and of `fields`. Raises ConfigError for a `ca_file`
        that cannot be used, and for plain HTTP beyond this machine, unless it is allowed."""
        self._token = token
        self._is_waited_for = connect_seconds is not None
        self._warn = warn
        if not (allow_plain_http or is_private(url)):
            raise ConfigError(PLAIN_HTTP)
        self._open(
            base_url=url,
            headers={"Authorization": f"Bearer {token}"},
            timeout=httpx.Timeout(timeout_seconds, connect=connect_seconds or timeout_seconds),
            **client_options(url, ca_file),
        )

    def report(self, answer: Any) -> None:
        """Pass the warnings of an answer on: it may be empty by mistake."""
        for said in answer.get("warnings", ()):
            self._warn(said)

    def _open(self, **options: Any) -> None:
        raise NotImplementedError

    def _pause(self, request: Request, tried: int, error: httpx.TransportError) -> float:
        """As `_pause` without an answer."""
        if self._is_waited_for:
            raise _silent(error) from None
        return _pause(request, tried, error)

    def _is_final(self, answer: httpx.Response, tried: int) -> bool:
        # A session that began just now may be unknown for a moment.
        is_new = answer.status_code == 401 and is_fresh_session(self._token, datetime.now(UTC))
        return tried == MOST_TRIES or not (is_new or answer.status_code in _RETRIED)

    def __reduce__(self) -> str:
        raise TypeError("a client holds a token, and is not pickled")


class ProfilesClient(_Calls):
    """Blocks. Safe to share between threads. Every method raises ProfileServiceError when the service refuses, or does not
    answer after some retries."""

    def _open(self, **options: Any) -> None:
        self._http = httpx.Client(**options)

    def pages(self, request: Request | None, follow: Follow[T]) -> Iterator[T]:
        """The items of all pages."""
        while request is not None:
            items, request = follow(self._call(request))
            yield from items

    def ask(self, request: Request, read: Callable[[Any], T]) -> T:
        """Send a request, and read its answer."""
        return read(self._call(request))

    def download(self, *path: str) -> bytes:
        """The content of a route that answers with a file: `download("jobs", ID, "download")`. Raises ProfileServiceError."""
        content: bytes = self._call(Request("GET", path_of(path)), _bytes)
        return content

    def is_reached(self) -> bool:
        """Whether the service answers, whoever asks."""
        try:
            self._http.get("/health/live")
        except httpx.TransportError:
            return False
        return True

    def close(self) -> None:
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _call(self, request: Request, read: Callable[[httpx.Response], Any] | None = None) -> Any:
        tried = 0
        while True:
            tried += 1
            try:
                answer = self._http.request(**request.options())
            except httpx.TransportError as error:
                pause = self._pause(request, tried, error)
            else:
                if self._is_final(answer, tried):
                    return (read or _content)(answer)
                pause = _pause(request, tried, answer)
            time.sleep(pause)


class AsyncProfilesClient(_Calls):
    """As `ProfilesClient`, for asyncio."""

    def _open(self, **options: Any) -> None:
        self._http = httpx.AsyncClient(**options)

    async def pages(self, request: Request | None, follow: Follow[T]) -> AsyncIterator[T]:
        """The items of all pages."""
        while request is not None:
            items, request = follow(await self._call(request))
            for each in items:
                yield each

    @asynccontextmanager
    async def download(self, *path: str) -> AsyncIterator[tuple[Mapping[str, str], AsyncIterator[bytes]]]:
        """The headers and the content of a route that answers with a file; `path` as of `ProfilesClient.call`. Raises
        ProfileServiceError."""
        try:
            async with self._http.stream("GET", path_of(path)) as answer:
                if not answer.is_success:
                    await answer.aread()
                    _content(answer)
                yield answer.headers, answer.aiter_bytes()
        except httpx.TransportError as error:
            raise _silent(error) from None

    async def ask(self, request: Request, read: Callable[[Any], T]) -> T:
        """Send a request, and read its answer."""
        return read(await self._call(request))

    async def close(self) -> None:
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _call(self, request: Request) -> Any:
        tried = 0
        while True:
            tried += 1
            try:
                answer = await self._http.request(**request.options())
            except httpx.TransportError as error:
                pause = self._pause(request, tried, error)
            else:
                if self._is_final(answer, tried):
                    return _content(answer)
                pause = _pause(request, tried, answer)
            await asyncio.sleep(pause)


def _pause(request: Request, tried: int, got: httpx.Response | httpx.TransportError) -> float:
    """Seconds until the request is sent again. Raises ProfileServiceError if it is not."""
    asked = got.headers.get("Retry-After", "") if isinstance(got, httpx.Response) else ""
    if isinstance(got, httpx.TransportError):
        has_not_arrived = isinstance(got, httpx.ConnectError | httpx.ConnectTimeout)
        if tried == MOST_TRIES or not (request.is_repeatable or has_not_arrived):
            raise _silent(got) from None
    if asked.isdecimal():
        return replace(PAUSES, base=1.5 * float(asked)).pause(0)
    return PAUSES.pause(tried - 1)


def _silent(error: httpx.TransportError) -> ProfileServiceError:
    return ProfileServiceError(f"the profile service does not answer ({type(error).__name__})", None)


def _bytes(answer: httpx.Response) -> bytes:
    return answer.content if answer.is_success else bytes(_content(answer))


def _content(answer: httpx.Response) -> Any:
    if answer.is_success:
        try:
            # Exact: a number that no float is equal to is a Decimal.
            return canonical.decode(answer.content) if answer.content else None
        except canonical.MalformedJSON:
            raise ProfileServiceError("the answer of the profile service is no JSON", None) from None
    raise _refusal(answer)


def _refusal(answer: httpx.Response) -> ProfileServiceError:
    try:
        found = answer.json()
    except ValueError:
        found = None
    problem = found if isinstance(found, dict) else {}
    detail = str(problem.get("detail", "no problem details"))
    errors = [each for each in problem.get("errors") or () if isinstance(each, dict)]
    message = f"the profile service answered {answer.status_code}: {detail}"
    places = [str(place) for each in errors if (place := each.get("pointer") or each.get("parameter"))]
    places = list(dict.fromkeys(places)) or list(filter(None, [problem.get("pointer")]))
    if places:
        message += f" (at {', '.join(first_few(places))})"
    if problem.get("hint"):
        message += f"; {problem['hint']}"
    return ProfileServiceError(
        message,
        answer.status_code,
        detail=detail,
        pointer=problem.get("pointer"),
        hint=problem.get("hint"),
        errors=errors,
    )
