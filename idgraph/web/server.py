"""Runs a service, in this thread or in another."""

from __future__ import annotations

import asyncio
import gc
import signal
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from idgraph.model.errors import ConfigError, IdgraphError
from idgraph.model.transport import PLAIN_HTTP, is_loopback

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.applications import Starlette

START_SECONDS = 30
STOP_SECONDS = 5
HEAD_SECONDS = 10
"""Seconds that a client may take for the head of a request."""
BODY_SECONDS = 60
"""And how long for its body."""
MOST_CONNECTIONS = 2000
"""More get the status 503."""


class Transport(NamedTuple):
    """The transport of a service: https with a certificate and its key as PEM, else plain HTTP, which beyond this
    machine must be allowed."""

    certificate_file: Path | None = None
    key_file: Path | None = None
    allow_plain_http: bool = False


LOCAL = Transport()


_SECONDS: dict[Any, Callable[[], float]] = {
    h11.IDLE: lambda: HEAD_SECONDS,
    h11.SEND_BODY: lambda: BODY_SECONDS,
}
"""By what a client is to send."""


class _Protocol(H11Protocol):
    """Closes a connection that does not bring the whole head of a request, or its whole body, in time; uvicorn has a time limit
    only for connections without any byte of one."""

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


class _Server(uvicorn.Server):
    """Calls `before_shutdown` of the application's state first, if there is one."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        getattr(self.config.app.state, "before_shutdown", bool)()  # type: ignore[union-attr]
        await super().shutdown(sockets)


def serve(
    app: FastAPI,
    host: str = "127.0.0.1",
    port: int = 8001,
    on_listening: Callable[[str], None] | None = None,
    transport: Transport = LOCAL,
) -> None:
    """Serve until the process is asked to stop (SIGINT, SIGTERM). `on_listening` is given the URL.

    Port 0 takes a free one. Raises ConfigError for an address that cannot be listened on, or must not by plain HTTP.
    """
    name = f"the {app.title} service"
    server = _server(app, name, host, port, transport)
    with closing(_listen(name, host, port)) as listener:
        if on_listening is not None:
            on_listening(_url(server, listener))
        # uvicorn sends it once more when it has shut down: the process must live on to close what it has open.
        signal.signal(signal.SIGTERM, _end)
        gc.freeze()  # To look through all modules takes 0.1 s, in which nobody is answered.
        server.run([listener])


def _end(*_signal: object) -> NoReturn:
    raise SystemExit(0)


@contextmanager
def serving(
    app: Starlette,
    host: str = "127.0.0.1",
    port: int = 0,
    transport: Transport = LOCAL,
    name: str | None = None,
) -> Iterator[str]:
    """Serve from a thread while the block runs; gives the URL. Port 0 takes a free one. Errors begin with `name`, else
    with the title of a service. Raises ConfigError as `serve` does."""
    name = name or f"the {getattr(app, 'title', '')} service"
    server = _server(app, name, host, port, transport)
    listener = _listen(name, host, port)
    thread = threading.Thread(target=server.run, args=([listener],), name=name, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + START_SECONDS
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise IdgraphError(f"{name} did not start")
            time.sleep(0.005)
        yield _url(server, listener)
    finally:
        server.should_exit = True
        thread.join(START_SECONDS)
        listener.close()


def _listen(name: str, host: str, port: int) -> socket.socket:
    listener: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # The protocol must be named: asyncio sets TCP_NODELAY only on sockets that say they are TCP, and
        # without it every small answer waits 40 ms for an acknowledgement.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except (OSError, OverflowError) as error:
        if listener is not None:
            listener.close()
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(f"{name} cannot listen on {host}:{port}: {reason}") from None
    return listener


def _url(server: _Server, listener: socket.socket) -> str:
    host, scheme = server.config.host, "https" if server.config.ssl_context_factory else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def _server(app: Starlette, name: str, host: str, port: int, transport: Transport) -> _Server:
    context = _certificate(name, transport)
    if context is None and not (transport.allow_plain_http or is_loopback(host)):
        raise ConfigError(f"{name} does not listen on {host}: {PLAIN_HTTP}")
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=_Protocol,
        limit_concurrency=MOST_CONNECTIONS,
        ssl_context_factory=None if context is None else lambda *_: context,
        ws="none",
        log_config=None,
        access_log=False,  # a query may hold what somebody searched for
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return _Server(config)


def _certificate(name: str, transport: Transport) -> ssl.SSLContext | None:
    if transport.certificate_file is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(transport.certificate_file, transport.key_file)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(f"{name} cannot use {transport.certificate_file} and its key: {reason}") from None
    return context
