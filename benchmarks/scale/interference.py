"""A proxy before the metadata service that can be slow, refuse changes, or be away, on request."""

from __future__ import annotations

import socketserver
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

SLOW_SECONDS = 5.0


class Mood(StrEnum):
    """The proxy's way with a request."""

    HEALTHY = "healthy"
    SLOW = "answers after 5 s"
    REFUSING = "schema changes fail"
    AWAY = "away"


class Proxy:
    """`url` is where it listens; `mood` may be changed at any time."""

    def __init__(self, target: str) -> None:
        self.mood = Mood.HEALTHY
        self.refused = 0
        self._target = urlsplit(target)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    @contextmanager
    def serving(self) -> Iterator[Proxy]:
        thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            self._server.server_close()
            thread.join()

    def passed_on(
        self, method: str, path: str, headers: dict[str, str], body: bytes
    ) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of the service's answer."""
        connection = HTTPConnection(str(self._target.hostname), self._target.port, timeout=60)
        try:
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            kept = {key: value for key, value in answer.getheaders() if key.lower() not in _OF_CONNECTION}
            return answer.status, kept, answer.read()
        finally:
            connection.close()


_OF_CONNECTION = frozenset({"connection", "transfer-encoding", "content-length", "keep-alive"})


def _handler(proxy: Proxy) -> type[socketserver.BaseRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            mood = proxy.mood
            if mood is Mood.AWAY:
                self.close_connection = True
                return
            if mood is Mood.SLOW:
                time.sleep(SLOW_SECONDS)
            if mood is Mood.REFUSING and self.command in ("PATCH", "POST", "PUT"):
                proxy.refused += 1
                status, content = 503, b"{}"
                headers: dict[str, str] = {}
            else:
                sent = {key: value for key, value in self.headers.items() if key.lower() != "host"}
                status, headers, content = proxy.passed_on(self.command, self.path, sent, body)
            try:
                self._send(status, headers, content)
            except ConnectionError:
                # The client has gone.
                self.close_connection = True

        def _send(self, status: int, headers: dict[str, str], content: bytes) -> None:
            self.send_response(status)
            for key, value in headers.items():
                self.send_header(key, value)
            if status != 304:
                self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_GET(self) -> None:
            self._answer()

        def do_PATCH(self) -> None:
            self._answer()

        def do_POST(self) -> None:
            self._answer()

        def do_PUT(self) -> None:
            self._answer()

        def log_message(self, *_: object) -> None:
            """Nothing: there is a request for each poll."""

    return Handler
