"""A client's way to a service in its own process: its application, without a socket."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import httpx


class InProcess(httpx.BaseTransport):
    """Sends requests to an ASGI application. An error that the application does not answer is raised as it is. For one
    thread."""

    def __init__(self, app: Any) -> None:
        self._inner = httpx.ASGITransport(app)
        self._runner = asyncio.Runner()

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """The answer, whole."""
        return self._runner.run(self._answered(request))

    async def _answered(self, request: httpx.Request) -> httpx.Response:
        answer = await self._inner.handle_async_request(request)
        parts = cast(httpx.AsyncByteStream, answer.stream)
        content = httpx.ByteStream(b"".join([part async for part in parts]))
        return httpx.Response(answer.status_code, headers=answer.headers, stream=content)

    def close(self) -> None:
        """End the loop."""
        self._runner.close()
