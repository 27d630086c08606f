"""A decryption service for tests: a real HTTP server whose cipher is easily undone, and which can misbehave on request."""

from __future__ import annotations

import gzip
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Fault = Callable[[BaseHTTPRequestHandler], None]
"""Answers, or does not, in place of the service."""

_CIPHER = bytes(range(255, -1, -1))


def encrypted(content: bytes) -> bytes:
    """What the service decrypts; a line of a file as well."""
    return content.translate(_CIPHER).hex().encode()


def _decrypted(content: bytes) -> bytes:
    return bytes.fromhex(content.decode()).translate(_CIPHER)


class Service:
    """What the service saw, and how it behaves. `faults` are of the next requests, `always` of all, `often` gives those
    of some; `seconds` is what each takes, of which `at_once` are worked at, if that is limited."""

    def __init__(self) -> None:
        self.seconds: Callable[[bytes], float] = lambda _: 0.0
        self.faults: deque[Fault] = deque()
        self.always: Fault | None = None
        self.often: Callable[[], Fault | None] = lambda: None
        self.positions: list[str] = []
        self.authorizations: Counter[str | None] = Counter()
        self.encodings: Counter[str | None] = Counter()
        self.most_at_once = 0
        self.workers: threading.Semaphore | None = None
        self._at_once = 0
        self._lock = threading.Lock()

    def answer(self, handler: Any) -> None:
        content = handler.rfile.read(int(handler.headers["Content-Length"]))
        with self._lock:
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            self.positions.append(handler.headers["Idgraph-Position"])
            self.authorizations[handler.headers["Authorization"]] += 1
            self.encodings[handler.headers["Accept-Encoding"]] += 1
            fault = self.always or (self.faults.popleft() if self.faults else self.often())
        try:
            if fault is not None:
                fault(handler)
                return
            plain = _decrypted(content)
            if self.workers is None:
                time.sleep(self.seconds(plain))
            else:
                with self.workers:
                    time.sleep(self.seconds(plain))
            send(handler, 200, plain)
        finally:
            with self._lock:
                self._at_once -= 1


def send(
    handler: Any, status: int, body: bytes = b"", announced: int | None = None, encoding: str | None = None
) -> None:
    handler.send_response(status)
    if encoding:
        handler.send_header("Content-Encoding", encoding)
    handler.send_header("Content-Length", str(len(body) if announced is None else announced))
    handler.end_headers()
    handler.wfile.write(body)
    handler.close_connection = announced is not None


def status(code: int, body: bytes = b"") -> Fault:
    return lambda handler: send(handler, code, body)


def compressed(body: bytes) -> Fault:
    return lambda handler: send(handler, 200, gzip.compress(body), encoding="gzip")


def cut(handler: Any) -> None:
    handler.close_connection = True


def half(handler: Any) -> None:
    send(handler, 200, b"{", announced=100)


def dripping(handler: Any) -> None:
    """An answer that never ends, a byte at a time."""
    handler.send_response(200)
    handler.send_header("Content-Length", "1000000")
    handler.end_headers()
    handler.close_connection = True
    try:
        while True:
            handler.wfile.write(b" ")
            time.sleep(0.02)
    except OSError:
        return


@contextmanager
def decryption_service(port: int = 0) -> Iterator[tuple[str, Service]]:
    """The service's URL, and how it behaves."""
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_POST(self) -> None:
            service.answer(self)

        def log_message(self, *_: object) -> None:
            """Nothing: requests hold personal data."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 1024
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Clients that went away are none of ours."""

    server = Server(("127.0.0.1", port), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/decrypt", service
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
