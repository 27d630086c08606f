"""Tasks of any HTTP server beside its routes: `HEAD` where there is `GET`, and gzip in both directions."""

from __future__ import annotations

import zlib

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from idgraph.web.problems import problem

SMALLEST_BYTES = 4096
"""A smaller answer is not compressed: most look-ups are, and it would take longer than it saves."""
_LEVEL = 4
_GZIP = ("gzip", "x-gzip")
_REST = ("/v1/", "/openapi.json")
_SIGNED = "/v1/snapshot"


class Heads:
    """ASGI middleware that answers `HEAD` as `GET`, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            return await self._app(scope, receive, send)
        is_started = is_done = False

        async def receiving() -> Message:
            # A stream would go on for a client that reads nothing of it.
            return {"type": "http.disconnect"} if is_started else await receive()

        async def sending(message: Message) -> None:
            nonlocal is_started, is_done
            if message["type"] == "http.response.start":
                is_started = True
                await send(message)
            elif not is_done:
                is_done = True
                await send({"type": "http.response.body", "body": b""})

        await self._app({**scope, "method": "GET"}, receiving, sending)
        if is_started and not is_done:
            await send({"type": "http.response.body", "body": b""})
        return None


class Decompressing:
    """ASGI middleware that decompresses the bodies of requests, up to so many bytes."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self._app = app
        self._most_bytes = most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        headers = MutableHeaders(scope=scope)
        coding = headers.get("content-encoding", "identity").strip().lower()
        if coding in ("identity", ""):
            return await self._app(scope, receive, send)
        if coding not in _GZIP:
            detail = f"the body has the content coding {coding[:40]!r}; send it as gzip, or without one"
            refused = problem(415, "content-coding", detail, {"Accept-Encoding": "gzip"})
            return await refused(scope, receive, send)
        try:
            body = await self._decompressed(receive)
        except zlib.error:
            return await problem(400, "not-gzip", "the body is not gzip")(scope, receive, send)
        if body is None:
            detail = f"a body has at most {self._most_bytes} bytes, decompressed too"
            return await problem(413, "too-large", detail)(scope, receive, send)
        del headers["content-encoding"]
        headers["content-length"] = str(len(body))
        is_read = False

        async def decompressed() -> Message:
            nonlocal is_read
            if is_read:
                return await receive()
            is_read = True
            return {"type": "http.request", "body": body, "more_body": False}

        return await self._app(scope, decompressed, send)

    async def _decompressed(self, receive: Receive) -> bytes | None:
        """None for too much. Raises zlib.error for what is no gzip, or not all of it."""
        found, stream = bytearray(), zlib.decompressobj(zlib.MAX_WBITS | 16)
        compressed, is_more = 0, True
        while is_more:
            message = await receive()
            part = message.get("body", b"")
            is_more = message.get("more_body", False)
            compressed += len(part)
            while part:
                found += stream.decompress(part, self._most_bytes + 1 - len(found))
                if len(found) > self._most_bytes or compressed > self._most_bytes:
                    return None
                part = stream.unconsumed_tail
                if stream.eof and stream.unused_data:
                    # Files of gzip may stand behind each other.
                    part, stream = stream.unused_data, zlib.decompressobj(zlib.MAX_WBITS | 16)
        if not stream.eof:
            raise zlib.error("cut off")
        return bytes(found)


class Compressing:
    """ASGI middleware that compresses large answers of the REST interface for those who take gzip.

    Pages stay as they are: beside text of somebody else, the length of what is compressed would tell of their secrets. So do
    snapshots, whose ETag is signed.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._compressing = GZipMiddleware(app, SMALLEST_BYTES, _LEVEL)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_rest = scope["type"] == "http" and scope["path"].startswith(_REST)
        if (
            not is_rest
            or scope["path"].startswith(_SIGNED)
            or "gzip" not in Headers(scope=scope).get("accept-encoding", "")
        ):
            return await self._app(scope, receive, send)

        async def weakening(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=message["headers"])
                etag = headers.get("etag", "")
                # Other bytes than without compression, and the same content.
                if headers.get("content-encoding") == "gzip" and etag.startswith('"'):
                    headers["etag"] = f"W/{etag}"
            await send(message)

        return await self._compressing(scope, receive, weakening)
