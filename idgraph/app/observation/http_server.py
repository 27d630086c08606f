"""A small HTTP server beside the flow: metrics and health, for who is on its address."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from idgraph.model.errors import ConfigError

JSON = "application/json"


class Page(NamedTuple):
    """An answer."""

    status: int
    content_type: str
    body: bytes


def verdict(is_good: bool) -> Page:
    """The answer of a health check."""
    status = "ok" if is_good else "unavailable"
    return Page(200 if is_good else 503, JSON, json.dumps({"status": status}).encode())


@contextmanager
def serving(host: str, port: int, pages: Mapping[str, Callable[[], Page]]) -> Iterator[str]:
    """Serve pages by path while the block runs; gives the URL. Port 0 takes a free one. Raises ConfigError for an
    address that cannot be listened on."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            answer = page() if page else Page(404, JSON, b'{"status": "not found"}')
            self.send_response(answer.status)
            self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(answer.body)))
            self.end_headers()
            self.wfile.write(answer.body)

        def log_message(self, *_: object) -> None:
            """Nothing: somebody asks every few seconds."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """Who asked went away, which is nobody's concern."""

    try:
        server = Server((host, port), Handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise ConfigError(f"[metrics]: cannot listen on {host}:{port}: {reason}") from None
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), name="observation", daemon=True)
    thread.start()
    try:
        yield f"http://{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
