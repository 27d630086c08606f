"""Who may do what, and how errors look."""

from __future__ import annotations

import hashlib
import re
import socket
from datetime import timedelta
from typing import Any

import httpx
import pytest
from sqlalchemy import select, text

from idgraph.web.api_page import page
from idgraph.web.refusals import ClashError, UnknownSubjectError
from metadata_service.api.access import is_allowed
from metadata_service.storage.database import Database
from metadata_service.storage.tables import TokenRow
from metadata_service.storage.tokens import Role, authenticate, list_tokens, revoke_token
from tests.metadata_service.conftest import TOKENS, Running
from tests.metadata_service.made_tokens import create_token

pytestmark = pytest.mark.slow


PATCH: dict[str, Any] = {"changes": []}


def assert_problem(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    problem: dict[str, Any] = answer.json()
    assert problem["status"] == status
    assert {"type", "title", "detail"} <= problem.keys()
    return problem


def test_without_a_token_only_health_and_the_description(service: Running) -> None:
    assert service.nobody.get("/healthz").json() == {"status": "ok"}
    described = service.nobody.get("/openapi.json").json()
    assert described["paths"]["/v1/snapshot"]["get"]
    assert described["security"] == [{"token": []}]
    for path in ("/v1/snapshot", "/v1/specs", "/v1/nothing", "/healthz/", "/v1/specs%2Fa"):
        answer = service.nobody.get(path)
        assert_problem(answer, 401)
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
    # A browser that has only the host gets the pages.
    assert service.nobody.get("/").headers["Location"].startswith("/ui")


@pytest.mark.parametrize("value", ["", "Bearer", "Basic abc", "Bearer wrong", "bearer ü"])
def test_bad_credentials(service: Running, value: str) -> None:
    answer = service.nobody.get("/v1/snapshot", headers={b"Authorization": value.encode()})
    assert_problem(answer, 401)


def test_a_reader_only_reads(service: Running) -> None:
    assert service.reader.get("/v1/snapshot").status_code == 200
    assert service.reader.get("/v1/changes").status_code == 200
    assert_problem(service.reader.patch("/v1/schema", json=PATCH), 403)
    assert_problem(service.reader.put("/v1/discovery-defaults", json={}), 403)
    assert_problem(service.reader.post("/v1/specs/check", json={}), 403)


def test_a_pipeline_also_patches_the_schema(service: Running) -> None:
    assert service.pipeline.get("/v1/snapshot").status_code == 200
    assert service.pipeline.patch("/v1/schema", json=PATCH).status_code == 200
    assert_problem(service.pipeline.put("/v1/discovery-defaults", json={}), 403)
    assert_problem(service.pipeline.put("/v1/attributes/a", json={}), 403)


def test_what_is_new_is_for_admins_until_said_otherwise() -> None:
    for role in (Role.READER, Role.PIPELINE):
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            assert not is_allowed(role, method, "/v1/anything")
    assert is_allowed(Role.ADMIN, "DELETE", "/v1/anything")


def test_tokens_are_stored_as_digests_only(database: Database) -> None:
    token = create_token(database, "ci", Role.READER)
    with database.read() as session:
        row = session.scalars(select(TokenRow)).one()
        assert row.digest == hashlib.sha256(token.encode()).hexdigest()
        stored = session.execute(text("SELECT * FROM tokens")).one()
    assert token not in str(stored)
    assert len(token) > 40


def test_a_token_lives_until_it_is_revoked(database: Database) -> None:
    token = create_token(database, "ci", Role.READER)
    known = authenticate(database, token)
    assert known is not None
    assert (known.name, known.role) == ("ci", Role.READER)
    revoke_token(database, "ci")
    assert authenticate(database, token) is None
    with pytest.raises(UnknownSubjectError):
        revoke_token(database, "ci")
    assert create_token(database, "ci", Role.ADMIN) != token, "the name is free again"
    assert [(entry.role, entry.revoked is None) for entry in list_tokens(database)] == [
        (Role.READER, False),
        (Role.ADMIN, True),
    ]


def test_a_token_expires(database: Database) -> None:
    token = create_token(database, "bootstrap", Role.ADMIN, lifetime=timedelta(microseconds=1))
    assert authenticate(database, token) is None
    lasting = create_token(database, "bootstrap", Role.ADMIN, lifetime=timedelta(hours=1))
    assert authenticate(database, lasting) is not None


def test_a_token_ends_by_itself(database: Database) -> None:
    for role in Role:
        create_token(database, f"a {role}", role)
    for token in list_tokens(database):
        assert token.expires is not None
        assert (token.expires - token.created).days == (90 if token.role is Role.ADMIN else 365)
    with pytest.raises(ClashError):
        create_token(database, "a reader", Role.READER)


def test_a_revoked_token_is_refused_at_once(service: Running) -> None:
    revoke_token(service.database, "the reader")
    assert_problem(service.reader.get("/v1/snapshot"), 401)


def test_errors_of_the_framework_are_problems_too(service: Running) -> None:
    assert_problem(service.admin.get("/v1/nothing"), 404)
    assert assert_problem(service.admin.delete("/v1/specs"), 405)
    headers = {"Content-Type": "application/json"}
    assert_problem(service.admin.patch("/v1/schema", content=b"{", headers=headers), 400)
    assert_problem(service.admin.patch("/v1/schema", content=b"[" * 100_000, headers=headers), 400)
    wrong = assert_problem(service.admin.get("/v1/attributes", params={"limit": 0}), 422)
    assert wrong["errors"][0]["parameter"] == "query.limit"


def test_a_misspelt_parameter_is_refused(service: Running) -> None:
    for path in ("/v1/attributes?limt=5", "/v1/specs/nothing?resaon=x"):
        refused = assert_problem(service.admin.get(path), 400)
        assert refused["errors"][0]["parameter"] == "query." + path.partition("?")[2].partition("=")[0]
    assert assert_problem(service.admin.get("/v1/attributes?limt=5"), 400)["hint"] == "did you mean limit?"
    assert service.admin.get("/ui?limt=5").status_code < 400


def test_errors_do_not_repeat_what_was_sent(service: Running) -> None:
    body = {"changes": "jane@example.com", "jane@example.com": 1, "secret": "jane@example.com"}
    answer = service.pipeline.patch("/v1/schema", json=body)
    assert_problem(answer, 422)
    assert "jane" not in answer.json()["detail"]
    assert all("jane" not in wrong["detail"] for wrong in answer.json()["errors"])


@pytest.mark.parametrize(("role", "status"), [(Role.ADMIN, 413), (Role.READER, 403)])
def test_a_large_body_is_refused_before_it_is_sent(service: Running, role: Role, status: int) -> None:
    url = httpx.URL(service.url)
    assert url.port is not None
    head = f"PUT /v1/specs/a HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKENS[role]}\r\n"
    with socket.create_connection((url.host, url.port), timeout=60) as connection:
        connection.sendall(f"{head}Content-Length: 1000000000\r\n\r\n".encode())
        assert connection.recv(100).startswith(f"HTTP/1.1 {status} ".encode())


def test_a_large_body_of_unknown_length_is_refused(service: Running) -> None:
    chunks = (b" " * 1_000_000 for _ in range(20))
    headers = {"Content-Type": "application/json"}
    assert_problem(service.admin.put("/v1/specs/a", content=chunks, headers=headers), 413)


def test_a_database_that_is_away_is_a_503(service: Running) -> None:
    with service.database.engine.begin() as connection:
        connection.execute(text("ALTER TABLE attributes RENAME TO gone"))
    answer = service.admin.get("/v1/attributes")
    assert_problem(answer, 503)
    assert answer.headers["Retry-After"]
    assert "gone" not in answer.text


@pytest.mark.parametrize(
    ("table", "path"),
    [("tokens", "/v1/schema"), ("requests", "/v1/specs/payroll"), ("changes", "/v1/schema")],
)
def test_a_database_that_cannot_tell_who_may_is_a_503(
    service: Running, table: str, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Found by review: rights that are read from the database ended in a traceback with SQL."""
    with service.database.engine.begin() as connection:
        connection.execute(text(f"ALTER TABLE {table} RENAME TO gone"))
    viewer = {"Authorization": f"Bearer {TOKENS[Role.VIEWER]}"}
    answer = service.nobody.put(path, json={}, headers=viewer)
    assert_problem(answer, 503)
    assert answer.headers["Retry-After"]
    assert "SELECT" not in caplog.text


def test_the_page_of_the_interface_needs_no_token_and_no_other_host(service: Running) -> None:
    answer = service.nobody.get("/docs")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
    described = service.nobody.get("/openapi.json").json()
    assert all(f"<code>{path}</code>" in answer.text for path in described["paths"])
    assert all(f"<code>{name}</code>" in answer.text for name in described["components"]["schemas"])
    assert not re.search(r"<script|https?://", answer.text)
    assert "/docs" not in described["paths"]


def test_the_page_of_an_interface_shows_what_is_written_as_text() -> None:
    shown = page(
        {
            "info": {"title": "<b>", "version": "1"},
            "paths": {"/x": {"get": {"description": "<script>alert(1)</script>", "responses": {}}}},
        }
    )
    assert "<script>" not in shown
    assert "<h1>&lt;b&gt;</h1>" in shown
