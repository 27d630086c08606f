"""An HTTP proxy before a real server that passes on, or does what it is asked to the next requests instead."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import NamedTuple
from urllib.parse import urlsplit


class Answer(NamedTuple):
    """Status and body of an HTTP answer, of which so many bytes are announced if that is more than there are."""

    status: int
    body: bytes
    headers: Mapping[str, str] = MappingProxyType({"Content-Type": "application/json"})
    announced: int = 0


DELAY_SECONDS = 3.0

Fault = Callable[[Callable[[bytes], Answer], bytes], Answer | None]
"""Gives the answer to a request's body, or None to cut the connection; gets what passes a body on."""


def passed_on(send: Callable[[bytes], Answer], body: bytes) -> Answer:
    """No fault."""
    return send(body)


def delayed(send: Callable[[bytes], Answer], body: bytes) -> Answer:
    """The request is carried out, and answered late."""
    answer = send(body)
    time.sleep(DELAY_SECONDS)
    return answer


def throttled(_: Callable[[bytes], Answer], __: bytes) -> Answer:
    """Amazon's answer to who asks too much."""
    kind = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"
    return Answer(400, json.dumps({"__type": kind, "message": "slow down"}).encode())


def busy(_: Callable[[bytes], Answer], __: bytes) -> Answer:
    """Elasticsearch's answer to who asks too much."""
    reason = {"type": "es_rejected_execution_exception", "reason": "of a value: secret"}
    return Answer(429, json.dumps({"error": reason, "status": 429}).encode())


def broken(_: Callable[[bytes], Answer], __: bytes) -> Answer:
    """A server's error of its own."""
    return Answer(500, b"")


def cut(_: Callable[[bytes], Answer], __: bytes) -> None:
    """The connection ends before the request arrives."""


def lost_answer(send: Callable[[bytes], Answer], body: bytes) -> None:
    """The request is carried out, and never answered."""
    send(body)


def half_an_answer(send: Callable[[bytes], Answer], body: bytes) -> Answer:
    """The request is carried out, and the connection ends in the middle of the answer."""
    answer = send(body)
    return answer._replace(body=answer.body[: len(answer.body) // 2], announced=len(answer.body))


def half_unprocessed(send: Callable[[bytes], Answer], body: bytes) -> Answer:
    """Half of a batch is done and the rest is given back, as DynamoDB does it under load."""
    request = json.loads(body)
    ((table, asked),) = request["RequestItems"].items()
    items = asked if isinstance(asked, list) else asked["Keys"]
    half = len(items) // 2
    done, left = items[:half], items[half:]
    if isinstance(asked, list):
        request["RequestItems"] = {table: done}
        unprocessed = {"UnprocessedItems": {table: left}}
    else:
        request["RequestItems"] = {table: {**asked, "Keys": done}}
        unprocessed = {"UnprocessedKeys": {table: {**asked, "Keys": left}}}
    answer = send(json.dumps(request).encode())
    return Answer(answer.status, json.dumps({**json.loads(answer.body), **unprocessed}).encode())


_OURS = ("accept", "content-type", "authorization", "x-amz")
_THEIRS = ("content-type", "x-elastic-product")


@contextmanager
def faulty_proxy(url: str, tls: ssl.SSLContext | None = None) -> Iterator[tuple[str, deque[Fault]]]:
    """The proxy's URL, and the faults of the requests to come; without one a request is passed on."""
    faults: deque[Fault] = deque()
    address = urlsplit(url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                fault = faults.popleft()
            except IndexError:
                fault = passed_on
            try:
                answer = fault(self._pass_on, body)
            except (OSError, HTTPException):
                # The server is away, or went away in the middle.
                answer = None
            if answer is None:
                self.close_connection = True
                return
            if self.command == "HEAD":
                answer = answer._replace(body=b"")
            self.send_response(answer.status)
            for key, value in answer.headers.items():
                self.send_header(key, value)
            self.send_header("Content-Length", str(max(len(answer.body), answer.announced)))
            self.end_headers()
            self.wfile.write(answer.body)
            self.close_connection = answer.announced > len(answer.body)

        do_GET = do_PUT = do_DELETE = do_HEAD = do_POST  # noqa: N815 - the base class's names

        def _pass_on(self, body: bytes) -> Answer:
            connection = HTTPConnection(str(address.hostname), address.port)
            connection.request(self.command, self.path, body, _named(self.headers.items(), _OURS))
            response = connection.getresponse()
            answer = Answer(response.status, response.read(), _named(response.getheaders(), _THEIRS))
            connection.close()
            return answer

        def log_message(self, *_: object) -> None:
            """Nothing: requests hold personal data."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    if tls:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http{'s' if tls else ''}://localhost:{server.server_port}", faults
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _named(headers: Iterable[tuple[str, str]], beginnings: tuple[str, ...]) -> dict[str, str]:
    return {key: value for key, value in headers if key.lower().startswith(beginnings)}
