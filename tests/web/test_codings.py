"""HEAD, and gzip in both directions, of both services."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import httpx
import pytest

from idgraph.web.server import serving
from metadata_service.api.app import create_app as create_metadata
from metadata_service.api.service import ServiceSettings
from metadata_service.storage.tokens import Role
from profile_service.api.app import MOST_BODY_BYTES
from tests.metadata_service.made_tokens import create_token
from tests.profile_service.api.conftest import Served, caller, problem, served_here
from tests.retail import Pipeline, records

pytestmark = pytest.mark.slow


JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def profiles(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    pipeline = Pipeline(tmp_path_factory.mktemp("profiles"))
    pipeline.process(records(200))
    with served_here(pipeline, [caller("everything", 100)]) as found:
        yield found


@pytest.fixture(scope="module")
def metadata(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    app = create_metadata(ServiceSettings(f"sqlite:///{tmp_path_factory.mktemp('metadata') / 'm.db'}"))
    with ExitStack() as stack:
        url = stack.enter_context(serving(app))
        token = create_token(app.state.service.database, "ann", Role.ADMIN)
        headers = {"Authorization": f"Bearer {token}"}
        yield stack.enter_context(httpx.Client(base_url=url, headers=headers, trust_env=False, timeout=60))


def same_heads(client: httpx.Client, path: str) -> None:
    got, headed = client.get(path), client.head(path)
    assert headed.content == b""
    assert headed.status_code == got.status_code, path
    changing = {"date", "server-timing", "set-cookie"}
    for name in got.headers.keys() - changing:
        if path != "/metrics" or name != "content-length":
            assert headed.headers.get(name) == got.headers[name], (path, name)


PATHS = ["/health/live", "/health/ready", "/openapi.json", "/metrics", "/v1/nothing", "/nothing"]


@pytest.mark.parametrize(
    "path", [*PATHS, "/v1/search/count", "/v1/views", "/v1/segments", "/v1/profiles/user_id:nobody"]
)
def test_a_head_of_the_profile_service(profiles: Served, path: str) -> None:
    same_heads(profiles.client("everything"), path)


@pytest.mark.parametrize(
    "path", [*PATHS, "/", "/ui", "/ui/sign-in", "/ui/specs", "/v1/specs", "/v1/snapshot", "/v1/attributes"]
)
def test_a_head_of_the_metadata_service(metadata: httpx.Client, path: str) -> None:
    same_heads(metadata, path)


def test_a_head_of_a_stream_ends(profiles: Served) -> None:
    headed = profiles.client("everything").head("/v1/changes", headers={"Accept": "text/event-stream"})
    assert headed.status_code == 200
    assert headed.headers["Content-Type"].startswith("text/event-stream")


def test_a_head_needs_what_a_get_needs(profiles: Served) -> None:
    assert profiles.client(None).head("/v1/search").status_code == 401
    client = profiles.client("everything")
    refused = client.head("/v1/profiles/lookup/x/y")
    assert refused.status_code == client.get("/v1/profiles/lookup/x/y").status_code
    assert problem(client.put("/v1/search/count", json={}), 405)
    assert client.put("/v1/search/count", json={}).headers["Allow"] == "GET, HEAD, POST"
    assert client.head("/v1/contacts").status_code == 405


def sent(client: httpx.Client, body: bytes, coding: str) -> httpx.Response:
    return client.post("/v1/search/count", content=body, headers={**JSON, "Content-Encoding": coding})


BODY = b'{"q": "activity.platform=ios"}'


def zipped(content: bytes) -> bytes:
    """The same bytes at each call: they name tests."""
    return gzip.compress(content, mtime=0)


@pytest.mark.parametrize(
    ("body", "coding"),
    [
        (BODY, "identity"),
        (zipped(BODY), "gzip"),
        (zipped(BODY), "X-GZIP"),
        (zipped(BODY[:9]) + zipped(BODY[9:]), "gzip"),
    ],
)
def test_a_body_is_read_in_its_coding(profiles: Served, body: bytes, coding: str) -> None:
    client = profiles.client("everything")
    expected = client.post("/v1/search/count", json=json.loads(BODY)).json()
    assert sent(client, body, coding).json() == expected


@pytest.mark.parametrize(
    ("body", "coding", "status"),
    [
        (BODY, "br", 415),
        (BODY, "gzip, gzip", 415),
        (zlib.compress(BODY), "deflate", 415),
        (BODY, "gzip", 400),
        (zipped(BODY)[:-9], "gzip", 400),
        (b"", "gzip", 400),
        (zipped(b" " * (MOST_BODY_BYTES + 1)), "gzip", 413),
        (zipped(b" " * (300 * MOST_BODY_BYTES)), "gzip", 413),
    ],
)
def test_what_cannot_be_decompressed_is_refused(
    profiles: Served, body: bytes, coding: str, status: int
) -> None:
    answer = sent(profiles.client("everything"), body, coding)
    found = problem(answer, status)
    if status == 415:
        assert coding in found["detail"]
        assert answer.headers["Accept-Encoding"] == "gzip"


def test_large_answers_are_compressed_if_asked(profiles: Served) -> None:
    client = profiles.client("everything")
    wanted: dict[str, Any] = {"params": {"limit": 100}}
    plain = client.get("/v1/search", **wanted, headers={"Accept-Encoding": "identity"})
    packed = client.get("/v1/search", **wanted, headers={"Accept-Encoding": "gzip"})
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert packed.content == plain.content
    assert int(packed.headers["Content-Length"]) < len(plain.content) / 3
    # Other bytes of the same content: a weak tag, which either way says that nothing changed.
    assert packed.headers["ETag"] == f"W/{plain.headers['ETag']}"
    for tag in (plain.headers["ETag"], packed.headers["ETag"]):
        for coding in ("gzip", "identity"):
            headers = {"Accept-Encoding": coding, "If-None-Match": tag}
            assert client.get("/v1/search", **wanted, headers=headers).status_code == 304
    small = client.get("/v1/search/count", headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in small.headers


@pytest.mark.parametrize("path", ["/ui/sign-in", "/v1/snapshot"])
def test_pages_and_signed_answers_stay_as_they_are(metadata: httpx.Client, path: str) -> None:
    for number in range(60):
        declared = {"path": f"a.b{number}", "data_type": "string", "description": "x" * 100}
        assert metadata.put(f"/v1/attributes/a.b{number}", json=declared).status_code in (200, 201)
    answer = metadata.get(path, headers={"Accept-Encoding": "gzip"})
    assert answer.status_code == 200
    assert "Content-Encoding" not in answer.headers
    assert not answer.headers.get("ETag", "").startswith("W/")
