"""uvicorn, for systems that granian has no wheel for."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from idgraph.web import server

if TYPE_CHECKING:
    from starlette.applications import Starlette

_SECONDS: dict[Any, Callable[[], float]] = {
    h11.IDLE: lambda: server.HEAD_SECONDS,
    h11.SEND_BODY: lambda: server.BODY_SECONDS,
}
"""By what a client is to send."""


class _Protocol(H11Protocol):
    """Closes a connection that does not bring the whole head of a request, or its whole body, in time; uvicorn has a time limit
    only for connections without any byte of one. h11, as httptools loses bodies of clients that offer HTTP/2."""

    _due: asyncio.TimerHandle | None = None
    _awaited: Any = None
    """The part that `_due` is for: a head, or a body."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        awaited = self.conn.their_state if self.conn.their_state in _SECONDS else None
        if awaited is self._awaited:
            return
        self._unwatch()
        if awaited is not None:
            self._awaited = awaited
            self._due = self.loop.call_later(_SECONDS[awaited](), self.transport.abort)

    def _unwatch(self) -> None:
        self._awaited = None
        if self._due is not None:
            self._due.cancel()
            self._due = None


class UvicornServer(uvicorn.Server):
    """A `Server`. More connections than MOST_CONNECTIONS get the status 503."""

    def __init__(self, app: Starlette, certificate: ssl.SSLContext | None) -> None:
        config = uvicorn.Config(
            app,
            http=_Protocol,
            limit_concurrency=server.MOST_CONNECTIONS,
            ssl_context_factory=None if certificate is None else lambda *_: certificate,
            ws="none",
            log_config=None,
            access_log=False,  # a query may hold what somebody searched for
            server_header=False,
            timeout_graceful_shutdown=server.STOP_SECONDS,
        )
        super().__init__(config)

    def run(self, listener: socket.socket) -> None:  # type: ignore[override]
        super().run([listener])

    def stop(self) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Call `before_shutdown` of the application's state first, if there is one."""
        getattr(self.config.app.state, "before_shutdown", bool)()  # type: ignore[union-attr]
        await super().shutdown(sockets)
