"""Tokens and profiles travel encrypted, or not beyond this machine; slow clients do not hold a service up."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import httpx
import pytest
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from idgraph.app.settings.document import MetadataSettings
from idgraph.client import ProfilesClient
from idgraph.model.errors import ConfigError, MetadataError
from idgraph.model.kafka import RegistrySettings
from idgraph.model.sources import DecryptorConfig
from idgraph.model.transport import is_private
from idgraph.web import guard, server
from idgraph.web.server import Transport, serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role
from sinks.http.metadata import MetadataClient
from tests.certificates import make_certificate
from tests.metadata_service.made_tokens import create_token

pytestmark = pytest.mark.slow


FAR = "http://metadata.internal.example:8410"


@contextmanager
def metadata(folder: Path, transport: Transport = server.LOCAL) -> Iterator[tuple[str, str]]:
    app = create_app(ServiceSettings(f"sqlite:///{folder / 'metadata.db'}"))
    token = create_token(app.state.service.database, "reader", Role.READER)
    with serving(app, transport=transport) as url:
        yield url, token


@pytest.mark.parametrize(
    ("url", "private"),
    [
        ("https://far.example", True),
        ("http://localhost:1", True),
        ("http://127.9.9.9:1", True),
        ("http://[::1]:1", True),
        (FAR, False),
        ("http://127.0.0.1.example:1", False),
        ("http://10.0.0.1:1", False),
        ("http://127.0.0.1@far.example", False),
        ("http://127.0.0.1\\@far.example", False),
        ("ftp://127.0.0.1", False),
    ],
)
def test_what_is_private(url: str, private: bool) -> None:
    assert is_private(url) is private


def test_plain_http_beyond_this_machine_must_be_allowed() -> None:
    for refused in (
        lambda allowed: MetadataSettings(url=FAR, allow_plain_http=allowed),
        lambda allowed: DecryptorConfig(url=FAR, allow_plain_http=allowed),
        lambda allowed: RegistrySettings(url=FAR, username="u", allow_plain_http=allowed),
    ):
        with pytest.raises(ValidationError, match="allow_plain_http"):
            refused(False)
        refused(True)
    with pytest.raises(ConfigError, match="allow_plain_http"):
        ProfilesClient(FAR, "token")
    ProfilesClient(FAR, "token", allow_plain_http=True).close()


def test_a_service_does_not_listen_beyond_this_machine_in_the_clear(tmp_path: Path) -> None:
    app = create_app(ServiceSettings(f"sqlite:///{tmp_path / 'metadata.db'}"))
    with pytest.raises(ConfigError, match="allow_plain_http"):
        server.serve(app, "0.0.0.0", 0)
    with serving(app, "0.0.0.0", 0, Transport(allow_plain_http=True)) as url:
        assert url.startswith("http://0.0.0.0:")


def test_no_proxy_of_the_environment_sees_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy, metadata(tmp_path) as (url, token):
        proxy.settimeout(0)
        for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.getsockname()[1]}")
        with MetadataClient(url, token, timeout=20) as client:
            assert client.snapshot() is not None
        with pytest.raises(BlockingIOError):
            proxy.accept()


def test_https_with_a_certificate_of_ones_own(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    with metadata(tmp_path, Transport(certificate, key)) as (url, token):
        assert url.startswith("https://127.0.0.1:")
        with MetadataClient(url, token, ca_file=certificate) as client:
            assert client.snapshot() is not None
        with MetadataClient(url, token) as stranger, pytest.raises(MetadataError, match="no answer"):
            stranger.snapshot()


def test_a_certificate_that_cannot_be_used_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    app = create_app(ServiceSettings(f"sqlite:///{tmp_path / 'metadata.db'}"))
    with pytest.raises(ConfigError, match=r"none\.crt"):
        server.serve(app, port=0, transport=Transport(tmp_path / "none.crt"))
    (tmp_path / "bad.crt").write_text("no certificate")
    with pytest.raises(ConfigError, match=r"bad\.crt"):
        server.serve(app, port=0, transport=Transport(tmp_path / "bad.crt"))


@pytest.mark.long
@pytest.mark.parametrize("tls", [False, True])
def test_half_a_head_does_not_keep_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tls: bool
) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.2)
    monkeypatch.setattr(server, "STOP_SECONDS", 1)
    certificate, key = make_certificate(tmp_path)
    with metadata(tmp_path, Transport(certificate, key) if tls else server.LOCAL) as (url, token):
        port = httpx.URL(url).port
        assert port
        for sent in (
            b"",
            b"GET /health/live HTTP/1.1\r\nHost: a\r\n",
            b"GET /health/live HTTP/1.1\r\nHost: a\r\n\r\nGET",
        ):
            with closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as plain:
                context = ssl.create_default_context(cafile=certificate)
                opened = context.wrap_socket(plain, server_hostname="127.0.0.1") if tls else plain
                with closing(opened), suppress(ConnectionResetError, ssl.SSLEOFError):
                    opened.sendall(sent)
                    while opened.recv(1000):
                        pass
        # A long poll is no slow head.
        with MetadataClient(url, token, ca_file=certificate if tls else None) as client:
            found = client.snapshot()
            assert found is not None
            assert client.snapshot(found.etag, wait=1) is None


def read_to_the_end(port: int, sent: bytes) -> bytes:
    """What a connection answers until the service closes it."""
    found = b""
    with (
        closing(socket.create_connection(("127.0.0.1", port), timeout=30)) as opened,
        suppress(ConnectionResetError),
    ):
        opened.sendall(sent)
        while some := opened.recv(10_000):
            found += some
    return found


@pytest.mark.parametrize("head", ["POST /ui/sign-in", "PUT /v1/specs/a", "POST /v1/nothing"])
def test_half_a_body_does_not_keep_a_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, head: str
) -> None:
    monkeypatch.setattr(server, "BODY_SECONDS", 0.3)
    monkeypatch.setattr(server, "STOP_SECONDS", 1)
    with metadata(tmp_path) as (url, token):
        port = httpx.URL(url).port
        assert port
        fields = f"Host: 127.0.0.1\r\nAuthorization: Bearer {token}\r\nContent-Length: 500\r\n"
        read_to_the_end(port, f"{head} HTTP/1.1\r\n{fields}\r\n{{".encode())
        assert httpx.get(f"{url}/health/live").status_code == 200
    assert not [each for each in caplog.records if each.exc_info]


def test_who_has_no_token_is_answered_and_not_listened_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(guard, "REST_SECONDS", 0.2)
    monkeypatch.setattr(server, "STOP_SECONDS", 1)
    with metadata(tmp_path) as (url, token):
        port = httpx.URL(url).port
        assert port
        for sent in ("Content-Length: 500\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"):
            answered = read_to_the_end(
                port, f"PUT /v1/specs/a HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer x\r\n{sent}".encode()
            )
            assert answered.startswith(b"HTTP/1.1 401")
        with httpx.Client(base_url=url) as client:
            for _ in range(2):
                assert client.put("/v1/specs/a", json={"a": "b" * 10_000}).status_code == 401
            headers = {"Authorization": f"Bearer {token}"}
            assert client.get("/v1/specs", headers=headers).status_code == 200


def test_more_connections_than_a_service_takes_wait(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 1)
    with metadata(tmp_path) as (url, _), httpx.Client(base_url=url) as one_more:
        with httpx.Client(base_url=url) as first:
            assert first.get("/health/live").status_code == 200
            with pytest.raises(httpx.ReadTimeout):
                one_more.get("/health/live", timeout=0.3)
        assert one_more.get("/health/live", timeout=30).status_code == 200


def test_requests_under_way_have_some_seconds_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "STOP_SECONDS", 1)
    under_way, ended = threading.Barrier(3), threading.Event()

    async def answer(request: Request) -> Response:
        await run_in_threadpool(under_way.wait, 30)
        await run_in_threadpool(ended.wait, 30)
        if request.url.path == "/endless":
            await asyncio.Event().wait()
        return Response(b"done")

    app = Starlette(routes=[Route("/{_:path}", answer)])
    app.state.before_shutdown = ended.set
    with ThreadPoolExecutor(2) as threads:
        with serving(app, name="a test") as url:
            slow, endless = (
                threads.submit(httpx.get, f"{url}/{each}", timeout=60) for each in ("slow", "endless")
            )
            under_way.wait(30)
        assert slow.result(30).content == b"done"
        error = endless.exception(30)
        assert error is not None or endless.result().status_code == 500


def test_the_body_of_a_client_that_offers_http_2_is_read() -> None:
    async def echo(request: Request) -> Response:
        return Response(await request.body())

    with serving(Starlette(routes=[Route("/", echo, methods=["POST"])]), name="a test") as url:
        headers = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQ"}
        assert httpx.post(url, content=b"hello", headers=headers).content == b"hello"


def test_a_head_is_bounded(tmp_path: Path) -> None:
    with metadata(tmp_path) as (url, _):
        port = httpx.URL(url).port
        assert port
        head = b"GET /health/live HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 2 * server.MOST_HEAD_BYTES
        assert read_to_the_end(port, head + b"\r\n\r\n")[:12] in (b"HTTP/1.1 431", b"")
        assert httpx.get(f"{url}/health/live").status_code == 200
