"""Look-ups that are answered before the framework are answered as it would: status, headers and bytes."""

from __future__ import annotations

import gzip
import logging
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from typing import NamedTuple
from urllib.parse import quote

import httpx
import pytest

from idgraph.repeating import FIELDS
from idgraph.web.application import Application, PlainCalls
from idgraph.web.limits import RateLimit
from idgraph.web.metrics import ACCESS, log_requests
from idgraph.web.server import serving
from profile_service.api.app import create_app
from sinks.sqlite.profiles import SqliteProfileStore
from tests.profile_service.api.conftest import (
    LEVELS,
    Served,
    caller,
    identified,
    published,
    served_here,
    with_levels,
)
from tests.retail import Pipeline, records
from tests.support.patience import eventually
from transforms.privacy.protected_names import TombstoneNames

pytestmark = pytest.mark.slow

USER = "user_id:4493"
ORIGIN = "https://shop.example"
NAME = b"/v1/profiles/"
MOVING = (b"date:", b"ratelimit-reset:")


class Both(NamedTuple):
    """One service, with the entrance before the framework and without it."""

    served: Served
    short: int
    long: int


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("both")
    pipeline = Pipeline(folder, snapshot=with_levels(LEVELS))
    pipeline.store = SqliteProfileStore(folder / "profiles.db", TombstoneNames(pipeline.provider))
    pipeline.process(records(400))
    pipeline.process([identified(user, "shared@example.com") for user in ("shared1", "shared2")])
    pipeline.process([identified(value, f"{len(value)}@example.com") for value in ("a/b", "ä ö", "x" * 3000)])
    callers = [caller("everything", 100), caller("half", 50), caller("none", 0), caller("once", 100)]
    with served_here(pipeline, callers) as served, closing(pipeline.store), ExitStack() as stack:
        ports = []
        for is_short in (True, False):
            app = create_app(served.service, RateLimit(0.001, 1000), [ORIGIN])
            assert isinstance(app, Application)
            assert isinstance(app.entrance, PlainCalls)
            if not is_short:
                app.entrance = app.entrance.app
            ports.append(int(stack.enter_context(serving(app)).rsplit(":", 1)[1]))
        yield Both(served, *ports)


def answered(port: int, request: bytes) -> tuple[list[bytes], bytes]:
    """The head, without what moves with the clock, and the body."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=60)) as connection:
        connection.sendall(request.replace(b"\r\n", b"\r\nConnection: close\r\n", 1))
        found = b""
        while some := connection.recv(100_000):
            found += some
    head, _, body = found.partition(b"\r\n\r\n")
    lines = [each for each in head.split(b"\r\n") if not each.lower().startswith(MOVING)]
    if b"content-encoding: gzip" in lines:
        # It has the time in it.
        body = gzip.decompress(body)
    return lines, body


def request(named: bytes, *headers: bytes, token: bytes = b"everything", method: bytes = b"GET") -> bytes:
    lines = [method + b" " + NAME + named + b" HTTP/1.1", b"Host: a", *headers]
    if token:
        lines.append(b"Authorization: Bearer " + token)
    return b"\r\n".join([*lines, b"", b""])


REQUESTS = {
    "by id": request(USER.encode()),
    "by another identifier": request(b"email:charles.wang@example.com"),
    "in another spelling": request(b"email:CHARLES.wang%40example.com"),
    "a slash": request(b"user_id:a%2Fb"),
    "no ascii": request(quote("user_id:ä ö").encode()),
    "no utf-8": request(b"email:%ff"),
    "large": request(b"user_id:" + b"x" * 3000),
    "large, compressed": request(b"user_id:" + b"x" * 3000, b"Accept-Encoding: gzip, br"),
    "small, compressed": request(USER.encode(), b"Accept-Encoding: gzip"),
    "nobody": request(b"email:nobody@example.com"),
    "nonsense": request(b"nonsense"),
    "no identifier": request(b""),
    "shared": request(b"email:shared@example.com"),
    "deeper": request(USER.encode() + b"/history"),
    "below a segment": request(USER.encode() + b"/"),
    "a parameter": request(USER.encode() + b"?provenance=true"),
    "an unknown parameter": request(USER.encode() + b"?provenace=true"),
    "an empty query": request(USER.encode() + b"?"),
    "half": request(USER.encode(), token=b"half"),
    "none": request(b"email:charles.wang@example.com", token=b"none"),
    "a hidden type": request(USER.encode(), token=b"none"),
    "no token": request(USER.encode(), token=b""),
    "an unknown token": request(USER.encode(), token=b"unknown"),
    "a token of an issuer": request(USER.encode(), token=b"ey.a.b"),
    "a token of a person": request(USER.encode(), token=b"idgp_a.b"),
    "no bearer": request(USER.encode(), b"Authorization: Basic YTpi", token=b""),
    "a bearer in capitals": request(USER.encode(), b"Authorization: BEARER everything", token=b""),
    "two tokens": request(USER.encode(), b"Authorization: Bearer none"),
    "another origin": request(USER.encode(), b"Origin: " + ORIGIN.encode()),
    "a foreign origin": request(USER.encode(), b"Origin: https://far.example"),
    "the head alone": request(USER.encode(), method=b"HEAD"),
    "another method": request(USER.encode(), method=b"DELETE"),
    "an unknown method": request(USER.encode(), method=b"get"),
    "options": request(USER.encode(), method=b"OPTIONS"),
    "a body": request(USER.encode(), b"Content-Length: 2") + b"{}",
    "any tag": request(USER.encode(), b"If-None-Match: *"),
    "another tag": request(USER.encode(), b'If-None-Match: "a", W/"b"'),
    "two headers of tags": request(USER.encode(), b'If-None-Match: "a"', b"If-None-Match: *"),
}


@pytest.mark.parametrize("kind", REQUESTS)
def test_both_ways_answer_the_same(both: Both, kind: str) -> None:
    for _ in range(2):
        short, long = (answered(port, REQUESTS[kind]) for port in (both.short, both.long))
        assert short == long


def test_both_ways_know_the_same_tags(both: Both) -> None:
    (lines, _), _ = (answered(port, request(USER.encode())) for port in (both.short, both.long))
    (tag,) = (each.partition(b": ")[2] for each in lines if each.startswith(b"etag:"))
    for known in (tag, b'"a", W/' + tag):
        asked = request(USER.encode(), b"If-None-Match: " + known)
        short, long = (answered(port, asked) for port in (both.short, both.long))
        assert short == long
        assert short[0][0].startswith(b"HTTP/1.1 304")


def test_both_ways_charge_the_same(both: Both) -> None:
    """Also what is tried on the short way and goes the long one."""
    for named in (USER.encode(), b"email:nobody@example.com", b"user_id:" + b"x" * 3000):
        asked = request(named, b"Accept-Encoding: gzip", token=b"once")
        short, long = (answered(port, asked) for port in (both.short, both.long))
        assert [each for each in short[0] if b"ratelimit" in each] == [
            each for each in long[0] if b"ratelimit" in each
        ]
    for port in (both.short, both.long):
        app_answers = [answered(port, request(USER.encode(), token=b"once"))[0][0] for _ in range(1000)]
        assert app_answers[996:] == [b"HTTP/1.1 200 OK"] + 3 * [b"HTTP/1.1 429 Too Many Requests"]


def test_an_answer_is_kept_for_those_who_may_still_see_it(both: Both) -> None:
    served = both.served
    client = served.client("everything")

    def age() -> object:
        return (
            client.get(f"/v1/profiles/{USER}").json().get("attributes", {}).get("demographics", {}).get("age")
        )

    assert age() is not None
    known = client.get(f"/v1/profiles/{USER}").headers["ETag"]
    kept = served.metadata.callers_now
    try:
        served.metadata.callers_now = [caller("everything", 20)]
        eventually(lambda: age() is None)
        assert client.get(f"/v1/profiles/{USER}", headers={"If-None-Match": known}).status_code != 304
        served.metadata.callers_now = []
        eventually(lambda: client.get(f"/v1/profiles/{USER}").status_code == 401)
    finally:
        served.metadata.callers_now = kept
    eventually(lambda: age() is not None)
    with published(served, with_levels(LEVELS | {"demographics.age": 101})):
        assert age() is None
    assert age() is not None


def test_a_kept_answer_is_not_made_again(both: Both, monkeypatch: pytest.MonkeyPatch) -> None:
    client = both.served.client("everything")
    first = client.get(f"/v1/profiles/{USER}")
    monkeypatch.setattr("profile_service.service.ProfileService.reader", None)
    assert client.get(f"/v1/profiles/{USER}").content == first.content


@pytest.mark.parametrize(
    ("header", "shown"),
    [
        (b"X-Request-Id: run-7.a", b"x-request-id: run-7.a"),
        (
            b"traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            b"x-request-id: 4bf92f3577b34da6a3ce929d0e0e4736",
        ),
        (b"X-Request-Id: with a space", None),
        (b"X-Nothing: 1", None),
    ],
)
def test_an_answer_has_the_id_of_its_request(both: Both, header: bytes, shown: bytes | None) -> None:
    heads = [answered(port, request(USER.encode(), header))[0] for port in (both.short, both.long)]
    assert heads[0] == heads[1]
    assert [each for each in heads[0] if each.lower().startswith(b"x-request-id")] == (
        [shown] if shown else []
    )


def test_requests_are_logged_by_pattern_where_it_is_wanted(
    both: Both, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(logging.getLogger(ACCESS), "level", logging.CRITICAL)
    log_requests()

    def logged() -> list[logging.LogRecord]:
        return [each for each in caplog.records if each.name == ACCESS]

    with caplog.at_level(logging.INFO, ACCESS):
        sent = 0
        for port in (both.short, both.long):
            url = f"http://127.0.0.1:{port}"
            with httpx.Client(base_url=url, trust_env=False) as client:
                token = {"Authorization": "Bearer everything"}
                for path, headers in (
                    (NAME.decode() + USER, token),
                    (NAME.decode() + "user_id:nobody-canary", token),
                    ("/v1/search", {}),
                ):
                    answer = client.get(path, headers=headers)
                    assert len(answer.headers["x-request-id"]) == 16
                    sent += 1
                    # A request is logged behind its answer.
                    eventually(lambda sent=sent: len(logged()) == sent)  # type: ignore[misc]
    lines = [(each.getMessage(), getattr(each, FIELDS)) for each in logged()]
    by = [(each["method"], each["route"], each["status"], each["caller"]) for _, each in lines]
    one = [
        ("GET", "/v1/profiles/{identifier}", 200, "everything"),
        ("GET", "/v1/profiles/{identifier}", 404, "everything"),
        ("GET", "-", 401, "-"),
    ]
    assert by == 2 * one
    assert not [text for text, _ in lines if "canary" in text or USER in text]
    assert all(fields["request"] in text and fields["seconds"] > 0 for text, fields in lines)
