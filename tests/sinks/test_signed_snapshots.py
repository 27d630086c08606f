"""A snapshot is believed only of the service whose key was pinned: the exploit is somebody who answers in its place."""

from __future__ import annotations

import json
import logging
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import NamedTuple

import httpx
import pytest

from idgraph.model.attributes import AttributeDefinition
from idgraph.model.errors import ConfigError, SnapshotSignatureError
from idgraph.signatures import PinnedKey, ServiceKey
from idgraph.web.server import serving
from ingestion.metadata.follower import SnapshotFollower
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role
from sinks.http.metadata import MetadataClient
from tests.metadata_service.made_tokens import create_token
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


def attribute(path: str, **policy: str) -> AttributeDefinition:
    return AttributeDefinition.model_validate({"path": path, "data_type": "integer"} | policy)


class Signing(NamedTuple):
    url: str
    token: str
    folder: Path

    def pinned(self) -> PinnedKey:
        return PinnedKey(self.folder / "metadata.pub")

    def client(self, url: str | None = None) -> MetadataClient:
        return MetadataClient(url or self.url, self.token, timeout=20, pinned=self.pinned())


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Signing]:
    key = ServiceKey(tmp_path / "metadata.key")
    app = create_app(ServiceSettings(f"sqlite:///{tmp_path / 'metadata.db'}", key))
    token = create_token(app.state.service.database, "admin", Role.ADMIN)
    with serving(app) as url, MetadataClient(url, token) as client:
        client.put_attribute(attribute("payroll.salary", encryption="protected"))
        yield Signing(url, token, tmp_path)


class Between(BaseHTTPRequestHandler):
    """Passes requests on, and answers with a snapshot that protects nothing."""

    protocol_version = "HTTP/1.1"
    mode = "honest"
    first: httpx.Response | None = None

    def __init__(self, url: str, *given: object) -> None:
        self.url = url
        super().__init__(*given)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        kind = type(self)
        answer = httpx.get(self.url + self.path, headers=dict(self.headers), timeout=60)
        kind.first = kind.first or answer
        body, headers = answer.content, dict(answer.headers)
        if kind.mode == "forged":
            document = json.loads(body)
            document["attributes"] = []
            body = json.dumps(document).encode()
        if kind.mode == "unsigned":
            headers = {name: value for name, value in headers.items() if not name.startswith("idgraph-")}
        if kind.mode == "replayed":
            answer, body, headers = kind.first, kind.first.content, dict(kind.first.headers)
        self.send_response(answer.status_code)
        for name in ("etag", "idgraph-key", "idgraph-signature"):
            if name in headers:
                self.send_header(name, headers[name])
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def between(url: str) -> Iterator[tuple[str, type[Between]]]:
    kind = type("Attacker", (Between,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(kind, url))
    server.daemon_threads = True
    Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", kind
    finally:
        server.shutdown()
        server.server_close()


def test_the_first_key_is_pinned_and_answers_are_believed(service: Signing) -> None:
    with service.client() as client:
        found = client.snapshot()
        assert found is not None
        assert client.snapshot(found.etag) is None
        client.put_attribute(attribute("a"))
        newer = client.snapshot(found.etag)
        assert newer is not None
        assert {each.path for each in newer.snapshot.attributes} == {"a", "payroll.salary"}
    key = ServiceKey(service.folder / "metadata.key")
    assert (service.folder / "metadata.pub").read_text() == key.public


def test_the_first_key_is_pinned_in_a_directory_that_is_not_there_yet(service: Signing) -> None:
    file = service.folder / "new" / ".idgraph" / "metadata.pub"
    with MetadataClient(service.url, service.token, pinned=PinnedKey(file)) as client:
        assert client.snapshot() is not None
    assert file.read_text() == ServiceKey(service.folder / "metadata.key").public
    assert file.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("mode", ["forged", "unsigned", "replayed"])
def test_an_answer_of_somebody_else_is_refused(service: Signing, mode: str) -> None:
    with between(service.url) as (url, attacker), service.client(url) as client:
        assert client.snapshot() is not None
        attacker.mode = mode
        with pytest.raises(SnapshotSignatureError, match="not signed"):
            client.snapshot()


def test_a_flow_keeps_its_last_good_snapshot_and_says_so(
    service: Signing, caplog: pytest.LogCaptureFixture
) -> None:
    file = service.folder / "snapshot.json"
    with between(service.url) as (url, attacker), service.client(url) as client:
        with SnapshotFollower(client, file) as follower:
            good = follower.current()
            attacker.mode = "forged"
            with MetadataClient(service.url, service.token) as admin:
                admin.put_attribute(attribute("b"))

            def reported() -> bool:
                return any("not signed" in each.message for each in caplog.records)

            eventually(reported)
            assert follower.current() == good
        assert any(each.levelno == logging.ERROR for each in caplog.records if "not signed" in each.message)
        # A start goes on from the file too.
        with SnapshotFollower(client, file) as follower:
            assert [each.path for each in follower.current().snapshot.attributes] == ["payroll.salary"]


def test_another_key_is_refused_until_the_pin_is_removed(service: Signing) -> None:
    other = ServiceKey(service.folder / "other.key")
    (service.folder / "metadata.pub").write_text(other.public)
    with service.client() as client:
        with pytest.raises(SnapshotSignatureError, match=r"remove .*metadata\.pub"):
            client.snapshot()
        (service.folder / "metadata.pub").unlink()
        assert client.snapshot() is not None
    configured = PinnedKey(service.folder / "metadata.pub", other.public)
    with (
        MetadataClient(service.url, service.token, pinned=configured) as client,
        pytest.raises(SnapshotSignatureError),
    ):
        client.snapshot()


def test_a_key_is_kept_and_shown_to_nobody(tmp_path: Path) -> None:
    file = tmp_path / "metadata.key"
    key = ServiceKey(file)
    assert ServiceKey(file).public == key.public
    assert ServiceKey(file).history == key.history
    assert file.stat().st_mode & 0o077 == 0
    with pytest.raises(TypeError, match="pickled"):
        pickle.dumps(key)
    file.write_text("nothing")
    with pytest.raises(ConfigError, match=r"metadata\.key"):
        ServiceKey(file)
