"""A schema registry in a thread of this process: the part of Confluent's HTTP interface that readers use."""

from __future__ import annotations

import base64
import json
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

Reference = tuple[str, str]
"""The name by which a schema refers to another, and its subject, of which there is one version."""


class Registry:
    """What is registered, what was asked for, and the statuses that the next requests are answered with instead: 0 cuts
    the connection, 200 gives half an answer."""

    def __init__(self) -> None:
        self.url = ""
        self.asked: list[str] = []
        self.faults: deque[int] = deque()
        self.credentials: str | None = None
        self._schemas: dict[int, dict[str, Any]] = {}
        self._subjects: dict[str, int] = {}

    def register(
        self,
        subject: str,
        text: str,
        kind: str = "AVRO",
        references: Sequence[Reference] = (),
        serialized: bytes | None = None,
    ) -> int:
        """Give a schema its number. `serialized` is the Protobuf file that `text` is the source of."""
        number = len(self._schemas) + 1
        self._schemas[number] = {"schema": text, "serialized": serialized}
        if kind != "AVRO":
            self._schemas[number]["schemaType"] = kind
        if references:
            self._schemas[number]["references"] = [
                {"name": name, "subject": other, "version": 1} for name, other in references
            ]
        self._subjects[subject] = number
        return number

    def answer(self, target: str) -> dict[str, Any] | None:
        """The body for a path; None where nothing is."""
        self.asked.append(target)
        parts = urlsplit(target)
        match [unquote(each) for each in parts.path.strip("/").split("/")]:
            case ["schemas", "ids", number]:
                found = self._schemas.get(int(number))
            case ["subjects", subject, "versions", "1"]:
                found = self._schemas.get(self._subjects.get(subject, 0))
            case _:
                found = None
        if found is None:
            return None
        body = {name: value for name, value in found.items() if name != "serialized"}
        if parse_qs(parts.query).get("format") == ["serialized"] and found["serialized"] is not None:
            body["schema"] = base64.b64encode(found["serialized"]).decode()
        return body


@contextmanager
def schema_registry() -> Iterator[Registry]:
    """A registry on a free port of loopback."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            fault = registry.faults.popleft() if registry.faults else None
            if fault == 0:
                self.close_connection = True
                return
            if registry.credentials and self.headers["Authorization"] != f"Basic {registry.credentials}":
                fault = 401
            body = registry.answer(self.path)
            content = json.dumps(body or {"error_code": 40403, "message": "Schema not found"}).encode()
            self.send_response(fault or (200 if body else 404))
            self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: len(content) // 2] if fault == 200 else content)
            self.close_connection = fault == 200

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    registry.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield registry
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
