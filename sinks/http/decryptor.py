"""A decryption service that is asked over HTTP: POST of the encrypted bytes, 200 with the decrypted ones.

Requests of a process are coroutines of one thread, so that a thousand that wait cost hardly more than one.
"""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx

from idgraph.model.backoff import Backoff
from idgraph.model.decryption import Decrypted
from idgraph.model.errors import ConfigError
from idgraph.model.transport import client_options
from sinks.credentials import secret_in

_PAUSES = Backoff(base=0.05, cap=2.0)

_TRANSIENT = frozenset({408, 425, 429})
"""Besides all of 5xx."""

_OF_THE_RECORD = frozenset({400, 413, 422})
"""Statuses of a record that cannot be decrypted; other statuses (401, 404, 302) concern every record."""


class DecryptionService(NamedTuple):
    """The place of the service and its limits: the most requests at once, seconds for a whole answer, retries of a
    request, and the longest answer that is taken, in bytes."""

    url: str
    capacity: int
    timeout: float
    retries: int
    max_bytes: int
    token_file: Path | None = None
    ca_file: Path | None = None


class HttpDecryptor:
    """A `Decryptor`. The record's position is in the header `Idgraph-Position`, percent-encoded, for the service's own
    log. A request is made again after a random pause, doubled each time, when the service is away, slower than its
    timeout, cuts an answer short, or says 408, 425, 429 or 5xx. Any other status is a failure at once: 400, 413 and 422 a final one of this record. Only
    an answer that is not compressed is taken: another may need any amount of memory before its size is known."""

    def __init__(self, service: DecryptionService) -> None:
        """Raises ConfigError for files that cannot be read."""
        self._service = service
        # Read here: neither a configuration nor a plan holds the token.
        self._headers = _headers(service.token_file)
        options = client_options(service.url, service.ca_file)
        self._under_way: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="decryptor", daemon=True)
        self._thread.start()
        limits = httpx.Limits(max_connections=service.capacity, max_keepalive_connections=service.capacity)
        self._client = httpx.AsyncClient(limits=limits, timeout=service.timeout, **options)

    def submit(self, content: bytes, position: str) -> Future[Decrypted]:
        """The answer comes after at most `retries + 1` timeouts and the pauses between."""
        return asyncio.run_coroutine_threadsafe(self._answer(content, position), self._loop)

    def close(self) -> None:
        """Give up what is in progress."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _end(self) -> None:
        # Not every task of the loop: what a request began in the client ends with it, in the client's order.
        given_up = set(self._under_way)
        for each in given_up:
            each.cancel()
        await asyncio.gather(*given_up, return_exceptions=True)
        await self._client.aclose()

    async def _answer(self, content: bytes, position: str) -> Decrypted:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine of `submit` is always a task
        self._under_way.add(task)
        try:
            return await self._decrypt(content, position)
        finally:
            self._under_way.discard(task)

    async def _decrypt(self, content: bytes, position: str) -> Decrypted:
        headers = {**self._headers, "Idgraph-Position": quote(position, safe=":/#,=")}
        for attempt in range(self._service.retries + 1):
            if attempt:
                await asyncio.sleep(_PAUSES.pause(attempt - 1))
            try:
                async with asyncio.timeout(self._service.timeout):
                    return Decrypted(await self._ask(content, headers), "", attempt)
            except TimeoutError:
                reason = f"no answer within {self._service.timeout:g} s"
            except _BusyError as busy:
                reason = str(busy)
            except httpx.HTTPError as error:
                # Only the type: its text may quote what was sent or answered.
                reason = type(error).__name__
            except _RefusedError as refused:
                return Decrypted(None, str(refused), attempt, refused.is_final)
            except asyncio.CancelledError:
                raise
            except Exception as error:
                return Decrypted(None, f"the decryption failed with {type(error).__name__}", attempt)
        failure = f"the decryption service failed {self._service.retries + 1} times, at last: {reason}"
        return Decrypted(None, failure, self._service.retries)

    async def _ask(self, content: bytes, headers: dict[str, str]) -> bytes:
        async with self._client.stream(
            "POST", self._service.url, content=content, headers=headers
        ) as response:
            status = response.status_code
            if status in _TRANSIENT or status >= 500:
                raise _BusyError(f"status {status}")
            if status != httpx.codes.OK:
                raise _RefusedError(
                    f"the decryption service refused the record with status {status}",
                    status in _OF_THE_RECORD,
                )
            if response.headers.get("Content-Encoding", "identity").lower() != "identity":
                raise _RefusedError("the decryption service compressed its answer", is_final=False)
            answer = bytearray()
            async for part in response.aiter_bytes():
                answer += part
                if len(answer) > self._service.max_bytes:
                    raise _RefusedError(
                        f"the decrypted record has more than {self._service.max_bytes} bytes", is_final=True
                    )
            return bytes(answer)


class _BusyError(Exception):
    """The service may take the same request later."""


class _RefusedError(Exception):
    """The service will not take the same request; `is_final` where that is because of the record."""

    def __init__(self, message: str, is_final: bool) -> None:
        super().__init__(message)
        self.is_final = is_final


def _headers(token_file: Path | None) -> dict[str, str]:
    headers = {"Content-Type": "application/octet-stream", "Accept-Encoding": "identity"}
    if token_file is not None:
        token = secret_in(token_file)
        if not token.isascii() or not token.isprintable():
            raise ConfigError(f"{token_file}: holds no token, which is one line of ASCII")
        headers["Authorization"] = f"Bearer {token}"
    return headers
