"""The client against the real service, and against services that misbehave."""

from __future__ import annotations

import pickle
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from decimal import Decimal
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from idgraph.model.attributes import AttributeDefinition, AttributeStatus, DataType, EncryptionLevel
from idgraph.model.behaviour import ActivityDefinition, AppliedModel, DerivedDefinition, ModelInput
from idgraph.model.errors import MetadataError, NotFoundError, SpecError, UnauthorizedError
from idgraph.model.schema_changes import SchemaChange, SchemaUpdates
from idgraph.model.snapshots import DiscoveryDefaults
from idgraph.model.specs import IdentifierPlace, SpecDefinition, SpecStatus
from idgraph.web.server import serving
from metadata_service.api.app import create_app
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role
from sinks.http.metadata import MetadataClient
from tests.tokens import give_token

pytestmark = pytest.mark.slow


TOKEN = "a-token-that-must-not-leak"
OPERATIONS: list[Any] = [{"operation": "shift", "spec": {"user": {"id": "user.id"}}}]


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    app = create_app(ServiceSettings(f"sqlite:///{tmp_path}/metadata.db"))
    give_token(app.state.service.database, "admin", Role.ADMIN, TOKEN)
    give_token(app.state.service.database, "reader", Role.READER, TOKEN + "-reader")
    with serving(app) as running:
        yield running


@pytest.fixture
def client(url: str) -> Iterator[MetadataClient]:
    with MetadataClient(url + "/", TOKEN) as opened:
        yield opened


def change(path: str, data_type: DataType = DataType.STRING) -> SchemaChange:
    return SchemaChange(path=path, data_type=data_type, source="s", first_event="file:f#1")


def spec(**fields: Any) -> SpecDefinition:
    place = IdentifierPlace(type="user_id", path="user.id", primary=True)
    return SpecDefinition(
        **{"name": "p", "source": "s", "operations": OPERATIONS, "identifiers": (place,)} | fields
    )


def test_the_snapshot_follows_what_is_decided(client: MetadataClient) -> None:
    first = client.snapshot()
    assert first is not None
    assert client.snapshot(first.etag) is None
    client.send([change("found")])
    assert client.snapshot(first.etag, wait=0.1) is None
    client.put_attribute(AttributeDefinition(path="a", data_type=DataType.STRING))
    second = client.snapshot(first.etag, wait=30)
    assert second is not None
    assert (second.snapshot.version, [each.path for each in second.snapshot.attributes]) == (2, ["a"])


def test_the_catalogue_follows_what_is_found(client: MetadataClient) -> None:
    first = client.catalogue()
    assert first is not None
    assert client.catalogue(first[1]) is None
    assert client.catalogue(first[1], wait=0.1) is None
    client.send([change("found")])
    second = client.catalogue(first[1], wait=30)
    assert second is not None
    assert second[0].shown_types == {"found": DataType.STRING}


def test_a_snapshot_that_the_service_does_not_know_is_read_and_reported(
    client: MetadataClient, caplog: pytest.LogCaptureFixture
) -> None:
    whole = client.snapshot()
    assert client.snapshot('"1-0123456789abcdef"', wait=30) == whole
    assert "no longer has snapshot 1 in its history" in caplog.text


@pytest.mark.long
def test_waiting_is_longer_than_the_timeout(url: str) -> None:
    with MetadataClient(url, TOKEN, timeout=60) as client:
        first = client.snapshot()
    assert first is not None
    # What remains of both is the time in which a busy machine must answer a request that it has answered once.
    with MetadataClient(url, TOKEN, timeout=5) as client:
        assert client.snapshot(first.etag, wait=5.5) is None


def test_send_splits(client: MetadataClient) -> None:
    updates: SchemaUpdates = client
    updates.send([])
    updates.send([change(f"a{number}") for number in range(5001)])
    assert len(list(client.search_attributes())) == 5001
    catalogue = client.catalogue()
    assert catalogue is not None
    assert catalogue[1].removeprefix("W/").startswith('"2-')


def test_send_gives_back_what_is_refused_wherever_it_stood(client: MetadataClient) -> None:
    taken = [change(f"a{number}") for number in range(5000)]
    refused = client.send([*taken, change("_event.secret"), change("a")])
    [(wrong, reason)] = refused
    assert wrong == change("_event.secret")
    assert "reserved" in reason
    assert client.get_attribute("a") is not None


def test_specs(client: MetadataClient) -> None:
    assert client.get_spec("p") is None
    assert client.list_specs() == []
    assert client.check(spec()) == []
    assert client.put_spec(spec(), "first").active_version is None
    assert client.activate("p").active_version == 1
    client.put_spec(spec(description="better", status=SpecStatus.ACTIVE), "second")
    client.activate("p", 1, "back again")
    [listed] = client.list_specs()
    assert listed == client.get_spec("p")
    assert (listed.latest_version, listed.active_version) == (2, 1)
    old = client.get_spec_version("p", 1)
    assert old is not None
    assert old.status is SpecStatus.ACTIVE
    assert client.get_spec_version("p", 3) is None
    assert client.retire("p").active_version is None
    with pytest.raises(MetadataError, match="409"):
        client.retire("p")


def test_a_stored_spec_can_be_stored_again(client: MetadataClient) -> None:
    added = {"b": Decimal("0.12345678901234567890"), "a": "é", "n": 12345678901234567890}
    operations = [*OPERATIONS, {"operation": "default", "spec": added}]
    stored = client.put_spec(spec(operations=operations)).document
    assert isinstance(stored.operations, list)
    kept = stored.operations[1]["spec"]
    assert list(kept) == ["b", "a", "n"]
    assert kept == {"b": 0.12345678901234568, "a": "é", "n": 12345678901234567890}
    assert client.put_spec(stored).document == stored
    assert client.check(stored) == []


def test_a_refused_spec_has_its_place(client: MetadataClient) -> None:
    for refuse in (client.put_spec, client.check):
        with pytest.raises(SpecError) as refused:
            refuse(spec(operations=[]))
        assert refused.value.pointer == "/operations"


def test_attributes(client: MetadataClient) -> None:
    assert client.get_attribute("a/b.c") is None
    definition = AttributeDefinition(
        path="a/b.c", data_type=DataType.STRING, encryption=EncryptionLevel.PROTECTED
    )
    stored = client.put_attribute(definition, "it is private")
    assert client.get_attribute("a/b.c") == stored
    retired = client.put_attribute(stored.model_copy(update={"status": AttributeStatus.RETIRED}))
    assert retired.version == 2
    with pytest.raises(MetadataError, match="/encryption"):
        client.put_attribute(AttributeDefinition(path="a/b.c", data_type=DataType.STRING))
    client.send([change("x"), change("y")])
    assert [found.path for found in client.search_attributes(status="discovered")] == ["x", "y"]
    assert [found.path for found in client.search_attributes("B.C", encryption="protected")] == ["a/b.c"]
    with pytest.raises(MetadataError, match="/policy"):
        client.put_attribute(
            AttributeDefinition.model_validate({"path": "a", "data_type": "string", "policy": "sum"})
        )
    with pytest.raises(MetadataError, match="412"):
        client.put_attribute(definition, etag='"old"')


@pytest.mark.parametrize("path", [".", "..", "a/../b", "?", "#", "%41", "é", "a b", "+"])
def test_strange_paths_keep_their_place(client: MetadataClient, path: str) -> None:
    client.send([change(path)])
    found = client.get_attribute(path)
    assert found is not None
    assert found.path == path
    assert client.put_attribute(AttributeDefinition(path=path, data_type=DataType.STRING)).version == 2


def test_defaults(client: MetadataClient) -> None:
    assert client.get_defaults() == DiscoveryDefaults()
    protected = DiscoveryDefaults(encryption=EncryptionLevel.PROTECTED)
    assert client.put_defaults(protected, "careful") == protected
    assert client.get_defaults() == protected


def test_a_refused_token(url: str) -> None:
    for token, status in (("wrong", "401"), (TOKEN + "-reader", "403")):
        with MetadataClient(url, token) as client, pytest.raises(UnauthorizedError, match=status) as refused:
            client.send([change("a")])
        assert url in str(refused.value)
        assert TOKEN not in str(refused.value)


def test_a_token_that_was_replaced(url: str) -> None:
    asked = []

    def renewed() -> str:
        asked.append(TOKEN)
        return TOKEN

    with MetadataClient(url, "expired", renewed=renewed) as client:
        assert client.snapshot() is not None
        client.send([change("a")])
    assert asked == [TOKEN], "only when it was refused"
    with (
        MetadataClient(url, "expired", renewed=lambda: "expired") as client,
        pytest.raises(UnauthorizedError, match="401"),
    ):
        client.send([change("a")])


def test_a_service_that_is_away() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with MetadataClient(f"http://user:password@127.0.0.1:{port}", TOKEN, timeout=30) as client:
        for call in (client.snapshot, lambda: client.send([change("a")]), client.list_specs):
            with pytest.raises(MetadataError, match=f"http://127.0.0.1:{port}/v1") as away:
                call()
            assert TOKEN not in str(away.value)
            assert "password" not in str(away.value)


@contextmanager
def answering(status: int, body: bytes) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (500, b""),
        (503, b"<html>"),
        (502, b"[]"),
        (200, b""),
        (200, b"null"),
        (200, b'{"items": 1}'),
        (404, b""),
        (301, b""),
    ],
)
def test_unusable_answers(status: int, body: bytes) -> None:
    calls: list[Callable[[MetadataClient], object]] = [
        lambda client: client.snapshot(),
        lambda client: client.list_specs(),
        lambda client: client.get_defaults(),
    ]
    with answering(status, body) as url, MetadataClient(url, TOKEN) as client:
        for call in calls:
            with pytest.raises(MetadataError, match=str(status)) as failed:
                call(client)
            assert not isinstance(failed.value, UnauthorizedError)


@pytest.mark.parametrize(
    ("url", "token"), [("http://x:port", TOKEN), ("x.example", TOKEN), ("http://x", "tökén\ud800")]
)
def test_unusable_settings(url: str, token: str) -> None:
    with pytest.raises(MetadataError) as refused:
        MetadataClient(url, token)
    assert token not in str(refused.value)


def test_a_client_is_not_pickled(client: MetadataClient) -> None:
    with pytest.raises(TypeError):
        pickle.dumps(client)


@pytest.mark.parametrize(("status", "body"), [(200, b"nonsense"), (401, b"{}"), (500, b""), (204, b"")])
def test_what_is_no_snapshot_is_an_error(status: int, body: bytes) -> None:
    with answering(status, body) as url, MetadataClient(url, TOKEN) as client, pytest.raises(MetadataError):
        client.snapshot()


def test_a_redirect_does_not_get_the_token() -> None:
    asked = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.headers["Authorization"])
            self.send_response(302 if len(asked) == 1 else 200)
            self.send_header("Location", "/other")
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Elsewhere)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        url = f"http://127.0.0.1:{server.server_address[1]}"
        with MetadataClient(url, TOKEN) as client, pytest.raises(MetadataError, match="302"):
            client.snapshot()
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
    assert asked == [f"Bearer {TOKEN}"]


@pytest.mark.parametrize("url", ["http://user:secret@127.0.0.1:9", "http://127.0.0.1:9/"])
def test_a_request_without_an_answer_shows_no_secret(url: str) -> None:
    with MetadataClient(url, TOKEN) as client, pytest.raises(MetadataError, match="serve metadata") as caught:
        client.snapshot()
    assert TOKEN not in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_connection_that_is_being_opened_is_closed_with_the_client(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found in CI: a follower that was connecting when its client was closed left a socket open."""
    connecting, goes_on = threading.Event(), threading.Event()
    opened: list[socket.socket] = []
    through = socket.create_connection

    def slow(*arguments: Any, **options: Any) -> socket.socket:
        connecting.set()
        assert goes_on.wait(60)
        opened.append(through(*arguments, **options))
        return opened[0]

    monkeypatch.setattr(socket, "create_connection", slow)
    client = MetadataClient(url, TOKEN)
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(client.snapshot()))
    thread.start()
    assert connecting.wait(60)
    client.close()
    goes_on.set()
    thread.join(60)
    assert answers
    assert opened[0].fileno() == -1
    with pytest.raises(MetadataError):
        client.snapshot()


def test_an_activity_is_put_with_the_time_from_which_it_is_whole(client: MetadataClient) -> None:
    for since in ("2026-03-01T00:00:00Z", None):
        wanted = ActivityDefinition.model_validate({"name": "order", "since": since})
        client.put_definition(wanted)
        assert [each.since for each in client.activities()] == [wanted.since]


def test_there_is_no_way_back_to_a_version_that_nobody_saved(client: MetadataClient) -> None:
    with pytest.raises(
        NotFoundError, match="no version 1 of a derived attribute nope: `idgraph behaviour list`"
    ):
        client.restore_derived("nope", 1)


def test_a_snapshot_comes_with_its_models(
    client: MetadataClient, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'idgraph[models]'")
    from tests.transforms.behaviour.onnx_models import linear

    content = linear([1])
    made = client.add_model(content, "churn", "why")
    assert client.models() == [made]
    assert (client.model(made.digest), client.model("0" * 64)) == (content, None)
    client.put_definition(
        DerivedDefinition(
            name="score", path="score", model=AppliedModel(digest=made.digest, inputs=(ModelInput(path="a"),))
        )
    )
    assert [each.used_by for each in client.models()] == [["score"]]
    asked: list[str] = []
    call = client._http.call

    def counted(method: str, path: str, **request: Any) -> Any:
        asked.append(path)
        if "/v1/models/" in path and asked.count(path) == 1:
            raise MetadataError("away")
        return call(method, path, **request)

    monkeypatch.setattr(client._http, "call", counted)
    with pytest.raises(MetadataError, match="away"):
        client.snapshot()
    snapshots = [each.snapshot for _ in range(2) if (each := client.snapshot()) is not None]
    assert [each.models for each in snapshots] == [{made.digest: content}] * 2
    assert asked == ["/v1/snapshot", f"/v1/models/{made.digest}"] * 2 + ["/v1/snapshot"]


def test_a_model_that_the_service_has_lost_hurts_only_itself(
    client: MetadataClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'idgraph[models]'")
    from tests.transforms.behaviour.onnx_models import linear

    made = client.add_model(linear([1]))
    model = AppliedModel(digest=made.digest, inputs=(ModelInput(path="a"),))
    client.put_definition(DerivedDefinition(name="score", path="score", model=model))
    monkeypatch.setattr(client, "model", lambda _: None)
    found = client.snapshot()
    assert found is not None
    assert (len(found.snapshot.derived_attributes), found.snapshot.models) == (1, {})
