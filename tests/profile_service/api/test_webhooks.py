"""Webhooks: signed deliveries in order, retried until they are taken, from the kept place; and no address but the allowed."""

from __future__ import annotations

import base64
import hmac
import json
import pickle
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from idgraph.jobs.table import JOBS
from idgraph.model.backoff import Backoff
from idgraph.model.errors import AlreadyRunningError, ConfigError
from idgraph.model.jobs import JobKind, JobRecord, JobState, Progress, Requester
from idgraph.model.ledger import Crossing, Delivery
from idgraph.model.shared_documents import SharedDocuments
from profile_service.api.rights import Rights
from profile_service.api.webhooks import Webhook, Webhooks
from sinks.http.webhook import WebhookSender
from tests.contracts.implementations import SHARED_DOCUMENTS, Implementation
from tests.profile_service.api.conftest import Served, caller, identified, served_here
from tests.profile_service.api.test_segments import segment, with_segments
from tests.profile_service.test_consents import decided, made
from tests.retail import Pipeline
from tests.support.patience import eventually

SECRET = base64.b64encode(b"a secret of more than twenty-four bytes")


class Receiver:
    """A server that takes deliveries, or answers the next ones otherwise."""

    def __init__(self) -> None:
        self.taken: list[dict[str, Any]] = []
        self.refused: list[str] = []
        self.answers: list[int] = []
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                signed = f"{self.headers['webhook-id']}.{self.headers['webhook-timestamp']}.".encode() + body
                digest = hmac.digest(base64.b64decode(SECRET), signed, "sha256")
                assert self.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"
                status = receiver.answers.pop(0) if receiver.answers else 204
                if status == 204:
                    receiver.taken.append(json.loads(body) | {"id": self.headers["webhook-id"]})
                else:
                    receiver.refused.append(self.headers["webhook-id"])
                self.send_response(status)
                self.send_header("Location", "/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Nothing."""

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/hook"


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    file = tmp_path / "secret"
    file.write_bytes(b"whsec_" + SECRET + b"\n")
    return file


PLACE = "webhooks/crm/place.json"


@pytest.fixture(params=SHARED_DOCUMENTS, ids=str)
def documents(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SharedDocuments]:
    implementation: Implementation[SharedDocuments] = request.param
    with implementation.opened(tmp_path) as opened:
        yield opened


@contextmanager
def delivering(served: Served, sender: WebhookSender, documents: SharedDocuments) -> Iterator[None]:
    with Webhooks(served.service, [Webhook("crm", "everybody", 0, sender)], documents):
        yield


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr("profile_service.api.webhooks.RETRY", Backoff(base=0.01, cap=0.01))
    for name in ("LEASED_SECONDS", "POLL_SECONDS"):
        monkeypatch.setattr(f"profile_service.api.webhooks.{name}", 0.01)
    pipeline = Pipeline(tmp_path)
    pipeline.snapshot = with_segments(pipeline.snapshot, segment("everybody"))
    with served_here(pipeline, [caller("all", 100)]) as found:
        yield found


def come(served: Served, *users: str) -> None:
    served.pipeline.process([identified(each, f"{each}@example.com") for each in users])


def test_each_is_delivered_in_order_and_tried_until_it_is_taken(
    served: Served, receiver: Receiver, secret: Path, documents: SharedDocuments
) -> None:
    sender = WebhookSender(receiver.url, secret)
    come(served, "a")
    # A redirect is not followed, whatever it is.
    receiver.answers += [500, 302, 410]
    with delivering(served, sender, documents):
        eventually(lambda: [each["profile"] for each in receiver.taken] == ["user_id:a"])
        assert receiver.refused == [receiver.taken[0]["id"]] * 3
        come(served, "b")
        eventually(lambda: len(receiver.taken) == 2)
        used = served.client("all").get("/v1/segments/everybody").json()["used_by"]
        assert used == ["webhook crm"]
    come(served, "c")
    # Another process goes on behind what was taken.
    with delivering(served, sender, documents), delivering(served, sender, documents):
        eventually(lambda: len(receiver.taken) == 3)
    assert [(each["kind"], each["profile"]) for each in receiver.taken] == [
        ("entered", f"user_id:{user}") for user in "abc"
    ]
    assert len({each["id"] for each in receiver.taken}) == 3
    assert {each["segment"] for each in receiver.taken} == {"everybody"}


def test_a_receiver_that_takes_nothing_is_a_metric(
    served: Served, receiver: Receiver, secret: Path, documents: SharedDocuments
) -> None:
    def value(name: str) -> float | None:
        text = served.client("all").get("/metrics").text
        found = re.search(rf'^idgraph_profiles_feed_{name}{{feed="webhook crm"}} (\S+)$', text, re.MULTILINE)
        return float(found[1]) if found else None

    receiver.answers += [500] * 10_000
    come(served, "a")
    assert value("failing") is None
    with delivering(served, WebhookSender(receiver.url, secret), documents):
        eventually(lambda: value("failing") == 1)
        assert (value("lag_seconds") or 0) > 0
        receiver.answers.clear()
        eventually(lambda: value("failing") == 0)
        eventually(lambda: value("lag_seconds") == 0)
    assert [each["profile"] for each in receiver.taken] == ["user_id:a"]


def test_jobs_are_counted_by_kind_and_state_of_their_last_run(tmp_path: Path) -> None:
    def record(kind: JobKind, target: str, state: JobState) -> JobRecord:
        return JobRecord(f"{kind}{target}", kind, target, {}, Requester("ann"), state, 0, 0, Progress())

    newest_first = [
        record(JobKind.REINDEX, "index", JobState.DONE),
        record(JobKind.ERASE, "a", JobState.FAILED),
        record(JobKind.ERASE, "b", JobState.FAILED),
        record(JobKind.REINDEX, "index", JobState.FAILED),
    ]
    jobs: Any = SimpleNamespace(records=lambda: newest_first, kinds=JOBS)
    with served_here(Pipeline(tmp_path), [caller("all", 100)], rights=Rights(jobs=jobs)) as found:
        text = found.client("all").get("/metrics").text
    counted = dict(re.findall(r"^idgraph_profiles_jobs{(.*)} (\S+)$", text, re.MULTILINE))
    assert counted['kind="erase",state="failed"'] == "2.0"
    assert counted['kind="reindex",state="failed"'] == "0.0"
    assert counted['kind="reindex",state="done"'] == "1.0"


def test_a_delivery_whose_place_was_not_kept_comes_again_under_its_id(
    served: Served, receiver: Receiver, secret: Path, documents: SharedDocuments
) -> None:
    come(served, "a")
    for number in (1, 2):
        with delivering(served, WebhookSender(receiver.url, secret), documents):
            eventually(lambda number=number: len(receiver.taken) == number)  # type: ignore[misc]
        assert documents.remove(PLACE)
    assert receiver.taken[0] == receiver.taken[1]


def test_what_is_not_for_it_is_passed_by(
    served: Served,
    receiver: Receiver,
    secret: Path,
    documents: SharedDocuments,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("profile_service.api.webhooks.PLACE_SECONDS", 0)
    come(served, "a")
    with delivering(served, WebhookSender(receiver.url, secret), documents):
        eventually(lambda: len(receiver.taken) == 1 and documents.read(PLACE))
        before = documents.read(PLACE)
        served.pipeline.store.cross([Crossing(1_000, "user_id:a", "another", 1)])
        eventually(lambda: documents.read(PLACE) != before)
        come(served, "b")
        eventually(lambda: len(receiver.taken) == 2)


def test_who_withdrew_her_consent_is_not_said_to_enter(
    tmp_path: Path, receiver: Receiver, secret: Path, documents: SharedDocuments
) -> None:
    pipeline = made(tmp_path / "pipeline", decided(1, "given"))
    with_purpose = segment("everybody", purpose="marketing")
    pipeline.snapshot = with_segments(pipeline.snapshot, with_purpose)
    pipeline.project()
    for at, status in enumerate(("withdrawn", "given", "withdrawn"), 2):
        pipeline.process([decided(at, status)])
        pipeline.project()
    with (
        served_here(pipeline, [caller("all", 100)]) as served,
        delivering(served, WebhookSender(receiver.url, secret), documents),
    ):
        eventually(lambda: len(receiver.taken) == 2)
        pipeline.process([decided(9, "given")])
        eventually(lambda: len(receiver.taken) == 3)
    assert [each["kind"] for each in receiver.taken] == ["left", "left", "entered"]


@pytest.mark.parametrize("url", ["http://example.com/", "ftp://localhost/", "http://10.0.0.1/", "//x"])
def test_only_https_or_this_machine(url: str, secret: Path) -> None:
    with pytest.raises(ConfigError, match="https"):
        WebhookSender(url, secret)


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("https://10.1.2.3/", "10.1.2.3"),
        ("https://inside.example/", "192.168.0.7"),
        ("https://inside.example/", "169.254.169.254"),
        ("https://inside.example/", "127.0.0.1"),
        ("https://inside.example/", "::1"),
        ("https://inside.example/", "::ffff:10.0.0.1"),
        ("https://inside.example/", "fd00::1"),
        ("https://inside.example/", "224.0.0.1"),
        ("http://localhost/", "10.0.0.1"),
    ],
)
def test_no_private_address_is_connected_to(
    url: str, address: str, secret: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def resolved(*_: object, **__: object) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443))]

    def connected(*_: object, **__: object) -> None:
        raise AssertionError("connected")

    monkeypatch.setattr(socket, "getaddrinfo", resolved)
    monkeypatch.setattr(socket, "create_connection", connected)
    failed = WebhookSender(url, secret).send([Delivery("id", "user_id:a", {})]) or ""
    assert "address" in failed or "elsewhere" in failed


def test_a_secret_is_long_and_never_pickled(tmp_path: Path, secret: Path, receiver: Receiver) -> None:
    short = tmp_path / "short"
    short.write_text("whsec_c2hvcnQ=")
    for file in (short, tmp_path / "none"):
        with pytest.raises(ConfigError):
            WebhookSender("https://example.com/", file)
    with pytest.raises(TypeError):
        pickle.dumps(WebhookSender(receiver.url, secret))


def test_a_lost_lease_ends_its_deliveries(
    served: Served, receiver: Receiver, secret: Path, documents: SharedDocuments
) -> None:
    """As of a process that slept while another one took over."""
    lost: list[bool] = []

    class Losing:
        def __getattr__(self, name: str) -> Any:
            return getattr(documents, name)

        @contextmanager
        def lease(self, name: str) -> Iterator[Any]:
            def require() -> None:
                if not lost:
                    lost.append(True)
                    raise AlreadyRunningError("the lease was lost")

            with documents.lease(name):
                yield SimpleNamespace(require=require)

    come(served, "a")
    with delivering(served, WebhookSender(receiver.url, secret), cast(Any, Losing())):
        eventually(lambda: len(receiver.taken) == 1)
    assert lost
