"""A database that is away, full, or of another format: refused at the start, not ready while it lasts, reported once."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from sqlalchemy import event, text

from idgraph.model.errors import ConfigError, StoreError
from metadata_service.storage.database import Database, open_database
from tests.metadata_service.conftest import Running
from tests.support.patience import eventually

pytestmark = pytest.mark.slow


@pytest.mark.parametrize(
    "change", ["ALTER TABLE users DROP COLUMN made_by", "DROP TABLE discovery_counts", "DROP TABLE spec_uses"]
)
def test_a_format_of_before_the_first_release_is_refused_and_left_as_it_is(
    database: Database, change: str
) -> None:
    with database.engine.begin() as connection:
        connection.execute(text(change))
        connection.execute(text("UPDATE alembic_version SET version_num = '0001'"))
        connection.execute(text("INSERT INTO tokens (name, role, digest, created, clearance, may_reveal, scopes, owner) "
            "VALUES ('kept', 'admin', 'd', CURRENT_TIMESTAMP, 0, false, '', '')"))  # fmt: skip
    with pytest.raises(ConfigError) as refused:
        open_database(database.engine.url.render_as_string(hide_password=False))
    message = str(refused.value)
    assert "format 0" in message
    assert "idgraph specs show" in message
    assert "\n" not in message
    with database.engine.connect() as connection:
        assert connection.scalar(text("SELECT count(*) FROM tokens WHERE name = 'kept'")) == 1


def test_a_database_of_something_else_is_refused(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = 'ae1027a6acf'"))
    with pytest.raises(ConfigError, match="something else"):
        open_database(database.engine.url.render_as_string(hide_password=False))


def test_a_server_that_is_away_at_the_start_is_one_line_with_its_address_and_no_password() -> None:
    with pytest.raises(StoreError) as refused:
        open_database("postgresql+psycopg://somebody:Sesame-1@127.0.0.1:9/catalogue?connect_timeout=5")
    message = str(refused.value)
    assert "127.0.0.1" in message
    assert "\n" not in message
    assert "Sesame-1" not in message


@pytest.mark.parametrize("place", ["folder.db", "file/metadata.db"])
def test_a_file_that_cannot_be_one_is_one_line(tmp_path: Path, place: str) -> None:
    (tmp_path / "folder.db").mkdir()
    (tmp_path / "file").write_text("")
    with pytest.raises((ConfigError, StoreError)) as refused:
        open_database(f"sqlite:///{tmp_path / place}")
    assert place.split("/", maxsplit=1)[0] in str(refused.value)
    assert "\n" not in str(refused.value)


@contextmanager
def full_disk(database: Database) -> Iterator[None]:
    """SQLite finds no room for another page."""

    def limit(pages: int) -> Any:
        def checked_out(connection: Any, *_: Any) -> None:
            connection.execute(f"PRAGMA max_page_count = {pages}").close()

        return checked_out

    full, free = limit(1), limit(1 << 30)
    event.listen(database.engine, "checkout", full)
    try:
        yield
    finally:
        event.remove(database.engine, "checkout", full)
        event.listen(database.engine, "checkout", free)


def ready(service: Running) -> int:
    return service.nobody.get("/health/ready").status_code


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_a_full_disk_is_reported_once_and_with_its_cause(
    service: Running, caplog: pytest.LogCaptureFixture
) -> None:
    def declared(path: str) -> httpx.Response:
        document = {"path": path, "data_type": "string", "description": "some words " * 80}
        return service.admin.put(f"/v1/attributes/{path}", json=document)

    assert ready(service) == 200
    with caplog.at_level(logging.INFO), full_disk(service.database):
        answers = [declared(f"a{n}") for n in range(40)]
        assert answers[-1].status_code == 503
        assert "SQLITE_FULL" in answers[-1].json()["detail"]
        assert service.admin.get("/v1/attributes").status_code == 200
        reported = [each.getMessage() for each in caplog.records if "SQLITE_FULL" in each.getMessage()]
        assert len(reported) == 1
    assert ready(service) == 200
    assert declared("roomy").is_success


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_an_outage_while_somebody_waits_is_one_warning_and_one_more_when_it_is_over(
    service: Running, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file, aside = tmp_path / "metadata.db", tmp_path / "aside"
    etag = service.pipeline.get("/v1/snapshot").headers["ETag"]
    with caplog.at_level(logging.INFO):
        service.database.engine.dispose()
        for each in tmp_path.glob("metadata.db*"):
            each.rename(f"{aside}{each.name.removeprefix('metadata.db')}")
        file.mkdir()
        assert ready(service) == 503
        waited = service.pipeline.get(
            "/v1/snapshot", params={"wait": 1}, headers={"If-None-Match": etag}
        ).status_code
        assert waited == 503
        warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert len(warnings) == 1
        assert "SQLITE_CANTOPEN" in warnings[0].getMessage()
        file.rmdir()
        for each in tmp_path.glob("aside*"):
            each.rename(f"{file}{each.name.removeprefix('aside')}")
        eventually(lambda: ready(service) == 200)
        warnings = [each for each in caplog.records if each.levelno >= logging.WARNING]
        assert len(warnings) == 2


def test_a_service_whose_tables_a_newer_one_has_changed_is_not_ready(service: Running) -> None:
    with service.database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    answer = service.nobody.get("/health/ready")
    assert answer.status_code == 503
    assert "9999" in answer.json()["detail"]
    assert service.nobody.get("/health/live").status_code == 200
