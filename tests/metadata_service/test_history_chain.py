"""The history is whole, or that is found: by its chain, and by whoever kept an ETag."""

from __future__ import annotations

import httpx
import pytest
from sqlalchemy import text

from metadata_service.storage.database import Database, Revision, has_revision
from metadata_service.storage.history import verify_history
from metadata_service.storage.tokens import Role, revoke_token
from tests.metadata_service.conftest import Running
from tests.metadata_service.made_tokens import create_token
from tests.metadata_service.test_policy_changes import bob  # noqa: F401 - a fixture

pytestmark = pytest.mark.slow


EXPLOITS = {
    "emptied": ["DELETE FROM changes"],
    "weakened": ["UPDATE attribute_versions SET document = replace(document, 'protected', 'none')"],
    "renamed": ["UPDATE snapshots SET actor = 'somebody else' WHERE version = 1"],
    "cut": [
        "DELETE FROM changes WHERE snapshot_version = 1",
        "DELETE FROM history WHERE version = 1",
    ],
    "cut at the end": ["DELETE FROM history WHERE version = (SELECT max(version) FROM history)"],
    "without its beginning": ["DELETE FROM history WHERE version < 2"],
    "with another beginning": [
        "UPDATE snapshots SET reason = 'never' WHERE version = 1",
        "UPDATE history SET mac = (SELECT mac FROM history WHERE version = 1) WHERE version = 0",
        "DELETE FROM history WHERE version = 1",
    ],
    "without anything": ["DELETE FROM history"],
    "hidden": ["UPDATE history SET content = 'x' WHERE version = 2"],
}


def is_whole(database: Database, key: bytes = b"") -> bool:
    with database.read() as session:
        return verify_history(session, key).broken_line is None


def declare(service: Running, path: str, encryption: str) -> None:
    body = {"path": path, "data_type": "string", "encryption": encryption}
    assert service.admin.put(f"/v1/attributes/{path}", json=body).status_code in (200, 201, 202)


def rewrite(database: Database, statements: list[str]) -> None:
    """As somebody with write access to the database does."""
    with database.engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SET session_replication_role = replica"))
        else:
            names = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'"))
            for name in names.scalars().all():
                connection.execute(text(f"DROP TRIGGER {name}"))
        for statement in statements:
            connection.execute(text(statement))


@pytest.mark.parametrize("exploit", EXPLOITS)
def test_a_rewritten_history_is_found(service: Running, exploit: str) -> None:
    declare(service, "payroll.salary", "protected")
    declare(service, "a", "none")
    assert is_whole(service.database)
    assert not is_whole(service.database, b"another key")
    rewrite(service.database, EXPLOITS[exploit])
    assert not is_whole(service.database)


def test_who_kept_an_etag_is_a_witness(service: Running) -> None:
    """With the key the chain can be made again, and then leads to another ETag."""
    declare(service, "a", "none")
    etag = service.admin.get("/v1/snapshot").headers["ETag"]
    declare(service, "b", "none")
    known = Revision.of_etag(etag)
    assert known
    with service.database.read() as session:
        assert has_revision(session, known)
    rewrite(service.database, [f"UPDATE history SET mac = '{'0' * 64}' WHERE version = {known.version}"])
    answer = service.admin.get("/v1/snapshot", headers={"If-None-Match": etag})
    assert (answer.status_code, answer.headers["Idgraph-History"]) == (200, "unknown")


@pytest.mark.parametrize("cut", ["version < 2", "version = 0", "version BETWEEN 1 AND 2"])
def test_a_flow_finds_that_what_was_before_its_snapshot_is_gone(service: Running, cut: str) -> None:
    for path in "abcd":
        declare(service, path, "none")
    etag = service.admin.get("/v1/snapshot").headers["ETag"]
    rewrite(service.database, [f"DELETE FROM history WHERE {cut}"])
    declare(service, "e", "none")
    answer = service.admin.get("/v1/snapshot", headers={"If-None-Match": etag})
    assert (answer.status_code, answer.headers["Idgraph-History"]) == (200, "unknown")


def test_tokens_are_in_the_history(service: Running) -> None:
    create_token(service.database, "carol", Role.READER, actor="root")
    revoke_token(service.database, "carol", "root")
    log = service.admin.get("/v1/changes", params={"kind": "token", "subject": "carol"}).json()["items"]
    assert [(each["action"], each["actor"]) for each in log] == [("revoked", "root"), ("made", "root")]
    assert is_whole(service.database)


def test_refused_calls_are_in_the_history_each_once(service: Running) -> None:
    for _ in range(3):
        assert service.reader.put("/v1/attributes/a.secret@example.com", json={}).status_code == 403
        assert service.reader.put("/v1/Some-Body/x", json={}).status_code == 403
        assert service.reader.request("STRANGE", "/v1/specs", json={}).status_code == 403
    log = service.admin.get("/v1/changes", params={"kind": "call"}).json()["items"]
    assert sorted((each["actor"], each["subject"]) for each in log) == [
        ("the reader", "PUT /v1/attributes"),
        ("the reader", "PUT elsewhere"),
        ("the reader", "other /v1/specs"),
    ]


def test_a_redaction_keeps_the_chain(service: Running, bob: httpx.Client) -> None:  # noqa: F811 - a fixture
    declare(service, "seen.ann", "none")
    declare(service, "a", "none")
    number = service.admin.post("/v1/redactions", json={"path": "seen.ann"}).json()["id"]
    assert bob.post(f"/v1/policy-changes/{number}/approve", json={}).status_code == 200
    assert is_whole(service.database)
    assert "seen.ann" not in service.admin.get("/v1/changes").text
    rewrite(service.database, ["UPDATE attribute_versions SET document = '{}' WHERE path LIKE 'redacted.%'"])
    assert not is_whole(service.database)
