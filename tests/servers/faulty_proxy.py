"""An HTTP proxy before a real server that passes on, or does what it is told to the next requests instead."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import urlsplit


class Answer(NamedTuple):
    """Status and body of an HTTP answer."""

    status: int
    body: bytes


Fault = Callable[[Callable[[bytes], Answer], bytes], Answer | None]
"""Gives the answer to a request's body, or None to cut the connection; gets what passes a body on."""


def throttled(_: Callable[[bytes], Answer], __: bytes) -> Answer:
    """Amazon's answer to who asks too much."""
    kind = "com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException"
    return Answer(400, json.dumps({"__type": kind, "message": "slow down"}).encode())


def broken(_: Callable[[bytes], Answer], __: bytes) -> Answer:
    """A server's error of its own."""
    return Answer(500, b"")


def cut(_: Callable[[bytes], Answer], __: bytes) -> None:
    """The connection ends before the request arrives."""


def lost_answer(send: Callable[[bytes], Answer], body: bytes) -> None:
    """What was asked for is done, and nobody is told."""
    send(body)


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


@contextmanager
def faulty_proxy(url: str) -> Iterator[tuple[str, deque[Fault]]]:
    """The proxy's URL, and the faults of the requests to come; without one a request is passed on."""
    faults: deque[Fault] = deque()
    address = urlsplit(url)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            try:
                fault = faults.popleft()
            except IndexError:
                answer: Answer | None = self._pass_on(body)
            else:
                answer = fault(self._pass_on, body)
            if answer is None:
                self.close_connection = True
                return
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/x-amz-json-1.0")
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def _pass_on(self, body: bytes) -> Answer:
            connection = HTTPConnection(str(address.hostname), address.port)
            headers = {key: value for key, value in self.headers.items() if key.startswith(("X-Amz", "Auth"))}
            headers["Content-Type"] = "application/x-amz-json-1.0"
            connection.request("POST", "/", body, headers)
            response = connection.getresponse()
            answer = Answer(response.status, response.read())
            connection.close()
            return answer

        def log_message(self, *_: object) -> None:
            """Nothing: requests hold personal data."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", faults
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
