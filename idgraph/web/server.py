"""Runs a service, in this thread or in another."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple, NoReturn, cast

from idgraph.model.errors import ConfigError, IdgraphError
from idgraph.model.transport import PLAIN_HTTP, is_loopback

if TYPE_CHECKING:
    from fastapi import FastAPI
    from starlette.applications import Starlette
    from starlette.types import Message, Receive, Scope, Send

START_SECONDS = 30
STOP_SECONDS = 5
HEAD_SECONDS = 10
"""Seconds that a client may take for the head of a request."""
BODY_SECONDS = 60
"""And how long for its body."""
MOST_CONNECTIONS = 2000
"""More wait until one of them ends."""
BACKLOG = 128
"""Connections that the system keeps until they are accepted."""
MOST_HEAD_BYTES = 1 << 16
END_SECONDS = 30.0
"""For processes that were asked to stop: their jobs end at a page."""
SECRET_BYTES = 64

log = logging.getLogger(__name__)


class Transport(NamedTuple):
    """The transport of a service: https with a certificate and its key as PEM, else plain HTTP, which beyond this
    machine must be allowed."""

    certificate_file: Path | None = None
    key_file: Path | None = None
    allow_plain_http: bool = False


LOCAL = Transport()


_LOGS = {"incremental": True, "handlers": {}, "loggers": {"granian.access": {}}}
"""Handlers stay as they are: granian's own configuration would close those of the process."""
_SIGNALS = signal.SIGINT, signal.SIGTERM
_GRACE_SECONDS = 1.0
"""For connections whose requests were cancelled."""


class Server:
    """One HTTP server of one application: granian reads heads and bodies, keeps connections and does TLS in Rust (hyper, rustls);
    requests run on the event loop of the calling thread."""

    def __init__(self, app: Starlette, transport: Transport) -> None:
        self.started = False
        self._app = app
        self._transport = transport
        self._requests: set[asyncio.Task[Any]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()
        self._caught: list[int] = []

    def run(self, listener: socket.socket) -> None:
        """Serve in this thread until `stop`, in the main thread also until SIGINT or SIGTERM, which is raised again at the
        end. Requests under way have STOP_SECONDS."""
        is_main = threading.current_thread() is threading.main_thread()
        before = {each: signal.getsignal(each) for each in _SIGNALS} if is_main else {}
        asyncio.run(self._run(listener, before))
        for number, handler in before.items():
            signal.signal(number, handler)
        if self._caught:
            signal.raise_signal(self._caught[0])

    def stop(self) -> None:
        """End `run`; from any thread."""
        if self._loop is None:
            self._stopping.set()
            return
        with suppress(RuntimeError):  # It has ended.
            self._loop.call_soon_threadsafe(self._stopping.set)

    def _catch(self, number: int) -> None:
        self._caught.append(number)
        self._stopping.set()

    async def _run(self, listener: socket.socket, signals: Iterable[int]) -> None:
        self._loop = asyncio.get_running_loop()
        for each in signals:
            # Any thread may get one: asyncio wakes the loop.
            self._loop.add_signal_handler(each, self._catch, each)
        others = _threads()
        async with self._app.router.lifespan_context(self._app):
            embedded = _embedded(self._answer, listener, self._transport)
            serving = asyncio.create_task(embedded.serve())
            stopping = asyncio.create_task(self._stopping.wait())
            self.started = True
            await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
            own = _threads() - others
            getattr(self._app.state, "before_shutdown", bool)()
            embedded.interrupt_signal = True
            embedded.main_loop_interrupt.set()
            if not (await asyncio.wait([serving], timeout=STOP_SECONDS))[0]:
                for request in self._requests:
                    request.cancel()
                await asyncio.wait([serving], timeout=_GRACE_SECONDS)
            if serving.done():
                serving.result()
            # A thread of Rust that comes back to an interpreter which has ended aborts the process.
            due = self._loop.time() + _GRACE_SECONDS
            while own & _threads() and self._loop.time() < due:
                await asyncio.sleep(0.002)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._requests.add(task := cast(asyncio.Task[Any], asyncio.current_task()))
        received = _Received(scope, receive)
        try:
            await self._app(scope, received.next, send)
        finally:
            self._requests.discard(task)
            received.close()


def _threads() -> set[int]:
    """The threads of this process that Python has not started (Linux)."""
    listed = Path("/proc/self/task").iterdir() if sys.platform == "linux" else ()
    return {int(each.name) for each in listed} - {each.native_id for each in threading.enumerate()}


class _Received:
    """The messages of one request. A client that has not sent the whole body in time is taken for gone. granian is asked by
    one task at a time: it ends a stream when several wait for its client to go."""

    def __init__(self, scope: Scope, receive: Receive) -> None:
        self._receive = receive
        self._has_body = any(
            name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"]
        )
        self._is_whole = False
        self._due = asyncio.get_running_loop().time() + BODY_SECONDS
        self._gone: asyncio.Task[None] | None = None

    async def next(self) -> Message:
        """The next message, as in ASGI."""
        if not self._is_whole:
            if not self._has_body:
                self._is_whole = True
                return {"type": "http.request", "body": b"", "more_body": False}
            try:
                async with asyncio.timeout_at(self._due):
                    message = await self._receive()
            except TimeoutError:
                return {"type": "http.disconnect"}
            self._is_whole = not message.get("more_body", False)
            return message
        if self._gone is None:
            self._gone = asyncio.create_task(self._until_gone())
        await asyncio.shield(self._gone)
        return {"type": "http.disconnect"}

    async def _until_gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def close(self) -> None:
        """Wait for nothing more."""
        if self._gone is not None:
            self._gone.cancel()


def _embedded(target: Any, listener: socket.socket, transport: Transport) -> Any:
    """A server of granian on a socket that listens already: that says why an address cannot be used."""
    from granian._granian import SocketHolder
    from granian.constants import HTTPModes, Interfaces, SSLProtocols
    from granian.http import HTTP1Settings
    from granian.log import LogLevels
    from granian.server.embed import Server as Embedded

    made: Any = Embedded(
        target,
        interface=Interfaces.ASGINL,
        http=HTTPModes.http1,
        websockets=False,
        backpressure=MOST_CONNECTIONS,
        http1_settings=HTTP1Settings(
            header_read_timeout=int(1000 * HEAD_SECONDS), max_buffer_size=MOST_HEAD_BYTES
        ),
        log_level=LogLevels.error,
        log_dictconfig=_LOGS,
        ssl_cert=transport.certificate_file,
        ssl_key=transport.key_file or transport.certificate_file,
        ssl_protocol_min=SSLProtocols.tls12,
    )
    holder: Any = SocketHolder
    backlog = (BACKLOG,) if sys.platform == "linux" else ()
    # It closes its descriptor at its end. `socket.dup` would let all who share the socket wait in `accept` for a moment.
    made._shd = holder(os.dup(listener.fileno()), False, *backlog)
    made._init_shared_socket = lambda: None
    return made


def serve(
    app: FastAPI,
    host: str = "127.0.0.1",
    port: int = 8001,
    on_listening: Callable[[str], None] | None = None,
    transport: Transport = LOCAL,
    descriptor: int | None = None,
) -> None:
    """Serve until the process is asked to stop (SIGINT, SIGTERM). `on_listening` is given the URL. `descriptor` is of a socket that
    listens already, as `serve_by_processes` hands it on.

    Port 0 takes a free one. Raises ConfigError for an address that cannot be listened on, or must not by plain HTTP.
    """
    name = f"the {app.title} service"
    _require_transport(name, host, transport)
    server = Server(app, transport)
    opened = _listen(name, host, port) if descriptor is None else socket.socket(fileno=descriptor)
    with closing(opened) as listener:
        # Raised once more at the end: the process must live on to close what it has open.
        signal.signal(signal.SIGTERM, _end)
        if on_listening is not None:
            on_listening(_url(host, transport, listener))
        gc.freeze()  # To look through all modules takes 0.1 s, in which nobody is answered.
        server.run(listener)


def _end(*_signal: object) -> NoReturn:
    raise SystemExit(0)


def serve_by_processes(
    command: Sequence[str],
    processes: int,
    name: str,
    host: str,
    port: int,
    on_listening: Callable[[str], None],
    transport: Transport,
) -> None:
    """Serve by so many processes of `command`, on one socket, until asked to stop; then each ends as `serve` does. The last argument
    of each is the socket's descriptor; `secret_of_processes` reads a secret that they share. One that ends is replaced.
    Raises ConfigError as `serve` does, IdgraphError when one ends soon after its start."""
    _require_transport(name, host, transport)
    secret = os.urandom(SECRET_BYTES)
    ended: SimpleQueue[_Process] = SimpleQueue()
    with closing(_listen(name, host, port)) as listener, ExitStack() as stack:
        signal.signal(signal.SIGTERM, _end)
        running: list[_Process] = []
        stack.callback(_end_all, running)
        for _ in range(processes):
            running.append(_Process(command, listener, secret, ended))
        on_listening(_url(host, transport, listener))
        while True:
            process = ended.get()
            running.remove(process)
            if process.seconds() < START_SECONDS:
                raise IdgraphError(
                    f"a process of {name} ended with code {process.returncode} soon after its start, so the others end too"
                )
            log.warning(
                "a process of %s ended with code %s; another one replaces it", name, process.returncode
            )
            running.append(_Process(command, listener, secret, ended))


class _Process(subprocess.Popen[bytes]):
    """Not in our process group: a terminal's Ctrl-C is for us. It ends when its standard input does, so also with us."""

    def __init__(
        self, command: Sequence[str], listener: socket.socket, secret: bytes, ended: SimpleQueue[_Process]
    ) -> None:
        self._began = time.monotonic()
        descriptor = listener.fileno()
        super().__init__(
            [*command, str(descriptor)], stdin=subprocess.PIPE, pass_fds=[descriptor], process_group=0
        )
        kept = cast(BinaryIO, self.stdin)
        with suppress(BrokenPipeError):
            kept.write(secret)
            kept.flush()

        def watch() -> None:
            self.wait()
            with suppress(BrokenPipeError):
                kept.close()
            ended.put(self)

        threading.Thread(target=watch, daemon=True).start()

    def seconds(self) -> float:
        """Since its start."""
        return time.monotonic() - self._began


def _end_all(running: Iterable[_Process]) -> None:
    for process in running:
        process.terminate()
    due = time.monotonic() + END_SECONDS
    for process in running:
        try:
            process.wait(max(0, due - time.monotonic()))
        except subprocess.TimeoutExpired:
            process.kill()


def secret_of_processes() -> bytes:
    """The secret of this process and those beside it. From here on, this process is asked to stop when standard input ends."""
    # Not by `sys.stdin`, whose lock a thread would hold when the interpreter ends.
    with open(0, "rb", buffering=0, closefd=False) as given:
        secret = given.read(SECRET_BYTES)
    end_with_input()
    return secret


def end_with_input() -> None:
    """From here on, this process is asked to stop when standard input ends: nobody else reads it."""

    def watch() -> None:
        os.read(0, 1)
        signal.raise_signal(signal.SIGTERM)

    threading.Thread(target=watch, daemon=True).start()


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
    _require_transport(name, host, transport)
    server = Server(app, transport)
    listener = _listen(name, host, port)
    thread = threading.Thread(target=server.run, args=(listener,), name=name, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + START_SECONDS
        while not server.started:
            if not thread.is_alive() or time.monotonic() > deadline:
                raise IdgraphError(f"{name} did not start")
            time.sleep(0.005)
        yield _url(host, transport, listener)
    finally:
        server.stop()
        thread.join(START_SECONDS)
        listener.close()


def require_port(name: str, host: str, port: int) -> None:
    """Raises ConfigError, which begins with `name`, where no server can listen now."""
    _listen(name, host, port).close()


def _listen(name: str, host: str, port: int) -> socket.socket:
    listener: socket.socket | None = None
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        # Of each connection too: without it every small answer waits 40 ms for an acknowledgement.
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except (OSError, OverflowError) as error:
        if listener is not None:
            listener.close()
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(f"{name} cannot listen on {host}:{port}: {reason}") from None
    return listener


def _url(host: str, transport: Transport, listener: socket.socket) -> str:
    scheme = "https" if transport.certificate_file else "http"
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"


def _require_transport(name: str, host: str, transport: Transport) -> None:
    """Raises ConfigError for a certificate that cannot be used, and where plain HTTP may not be spoken."""
    if transport.certificate_file is None:
        if not (transport.allow_plain_http or is_loopback(host)):
            raise ConfigError(f"{name} does not listen on {host}: {PLAIN_HTTP}")
        return
    try:
        ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(
            transport.certificate_file, transport.key_file
        )
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(f"{name} cannot use {transport.certificate_file} and its key: {reason}") from None
