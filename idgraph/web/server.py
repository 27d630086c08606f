"""Runs a service, in this thread or in another."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager

import uvicorn
from fastapi import FastAPI

from idgraph.model.errors import ConfigError, IdgraphError

START_SECONDS = 30
STOP_SECONDS = 5


class _Server(uvicorn.Server):
    """Tells the application first that it stops."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.config.app.state.before_shutdown()  # type: ignore[union-attr]
        await super().shutdown(sockets)


def serve(
    app: FastAPI, host: str = "127.0.0.1", port: int = 8001, on_listening: Callable[[str], None] | None = None
) -> None:
    """Serve until the process is asked to stop (SIGINT, SIGTERM). `on_listening` is given the URL.

    Port 0 takes a free one. Raises ConfigError for an address that cannot be listened on.
    """
    with closing(_listen(app, host, port)) as listener:
        if on_listening is not None:
            on_listening(_url(host, listener))
        _server(app, host, port).run([listener])


@contextmanager
def serving(app: FastAPI, host: str = "127.0.0.1", port: int = 0) -> Iterator[str]:
    """Serve from a thread while the block runs; gives the URL. Port 0 takes a free one."""
    listener = _listen(app, host, port)
    server = _server(app, host, port)
    thread = threading.Thread(target=server.run, args=([listener],), name=app.title, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + START_SECONDS
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise IdgraphError(f"the {app.title} service did not start")
            time.sleep(0.005)
        yield _url(host, listener)
    finally:
        server.should_exit = True
        thread.join(START_SECONDS)
        listener.close()


def _listen(app: FastAPI, host: str, port: int) -> socket.socket:
    listener: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # The protocol must be named: asyncio sets TCP_NODELAY only on sockets that say they are TCP, and
        # without it every small answer waits 40 ms for an acknowledgement.
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        if listener is not None:
            listener.close()
        reason = error.strerror or type(error).__name__
        raise ConfigError(f"the {app.title} service cannot listen on {host}:{port}: {reason}") from None
    return listener


def _url(host: str, listener: socket.socket) -> str:
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def _server(app: FastAPI, host: str, port: int) -> _Server:
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        ws="none",
        log_config=None,
        access_log=False,  # a query may hold what somebody searched for
        server_header=False,
        timeout_graceful_shutdown=STOP_SECONDS,
    )
    return _Server(config)
