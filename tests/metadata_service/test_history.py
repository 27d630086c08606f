"""The database itself: made from nothing, brought up to date, append-only, never two of one version."""

from __future__ import annotations

import stat
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import get_args

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import String, create_engine, inspect, text
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from idgraph.model.attributes import AttributeDefinition, DataType
from idgraph.model.errors import ConfigError
from idgraph.web.cursors import PageRequest
from metadata_service.attributes.catalogue import carry_out, plan_attribute
from metadata_service.attributes.discovery import apply_schema_changes
from metadata_service.storage.database import NEWEST, Database, open_database
from metadata_service.storage.edits import Action, Kind
from metadata_service.storage.tables import Base, ChangeRow, DocumentVersionRow
from metadata_service.storage.versions import list_changes
from tests.metadata_service.conftest import sqlite_url
from tests.upgrades import metadata_1

APPEND_ONLY = (
    "snapshots",
    "history",
    "changes",
    "attribute_versions",
    "document_versions",
    "requests",
    "request_steps",
    "models",
    "model_contents",
)
"""Tables of which no column ever changes."""


def declare(database: Database, path: str, description: str = "") -> None:
    definition = AttributeDefinition(path=path, data_type=DataType.STRING, description=description)
    with database.write("admin", "test") as edit:
        carry_out(edit, plan_attribute(edit, definition, lambda _known: None))


@pytest.mark.parametrize("is_upgraded", [False, True])
def test_a_database_has_the_tables_and_triggers_that_the_code_expects(
    database_url: str, is_upgraded: bool
) -> None:
    if is_upgraded:
        engine = create_engine(database_url)
        with engine.begin() as connection:
            metadata_1.create(connection)
        engine.dispose()
    with closing(open_database(database_url)) as database, database.engine.connect() as connection:
        # SQLite takes no notice of a text's length, and cannot change one.
        is_exact = connection.dialect.name != "sqlite"

        def is_compared(_: object, name: str | None, *__: object) -> bool:
            return not (is_exact and name == "ix_attributes_facets")  # PostgreSQL indexes no long texts

        options = {"compare_type": is_exact, "include_object": is_compared}
        assert compare_metadata(MigrationContext.configure(connection, opts=options), Base.metadata) == []
        listed = (
            "SELECT tgname FROM pg_trigger WHERE NOT tgisinternal"
            if is_exact
            else "SELECT name FROM sqlite_master WHERE type = 'trigger'"
        )
        tables = [*APPEND_ONLY, "spec_versions"]
        assert sorted(connection.scalars(text(listed))) == sorted(
            f"{table}_{event}" for table in tables for event in ("update", "delete")
        )
        assert connection.scalar(text("SELECT version_num FROM alembic_version")) == f"{NEWEST:04}"


def test_each_kind_fits_its_columns() -> None:
    """Found by PostgreSQL, which refused `classification_levels`: SQLite takes no notice of a text's length."""
    for row, kinds in ((DocumentVersionRow, Kind), (ChangeRow, Kind), (ChangeRow, Action)):
        column = row.__table__.c["action" if kinds is Action else "kind"].type
        assert isinstance(column, String)
        assert column.length is not None
        assert max(map(len, get_args(kinds))) <= column.length


def test_opening_again_keeps_everything(database: Database) -> None:
    declare(database, "a")
    again = open_database(database.engine.url.render_as_string(hide_password=False))
    assert again.revision() == database.revision()
    again.close()


def test_a_database_of_a_newer_release_is_left_alone(database: Database) -> None:
    with database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    with pytest.raises(ConfigError, match="newer"):
        open_database(database.engine.url.render_as_string(hide_password=False))


@pytest.mark.parametrize(
    "url", ["", "sqlite://", "sqlite:///:memory:", "mysql://x/y", "nonsense", "oracle+x://"]
)
def test_unusable_urls(url: str) -> None:
    with pytest.raises(ConfigError):
        open_database(url)


def test_a_damaged_file_is_reported_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / "metadata.db").write_bytes(bytes(range(256)) * 40)
    with pytest.raises(ConfigError, match=r"metadata.db: is damaged .* restore it"):
        open_database(sqlite_url(tmp_path))


def test_the_file_is_for_its_owner_only(tmp_path: Path) -> None:
    open_database(sqlite_url(tmp_path)).close()
    assert stat.S_IMODE((tmp_path / "metadata.db").stat().st_mode) == 0o600


def test_sqlite_is_set_up_for_several_processes(tmp_path: Path) -> None:
    database = open_database(sqlite_url(tmp_path))
    with database.engine.connect() as connection:
        assert connection.scalar(text("PRAGMA journal_mode")) == "wal"
        assert connection.scalar(text("PRAGMA foreign_keys")) == 1
        assert connection.scalar(text("PRAGMA busy_timeout")) == 10_000
    database.close()


@pytest.mark.parametrize(
    "table",
    [each for each in (*APPEND_ONLY, "spec_versions") if each not in ("history", "models", "model_contents")],
)
def test_history_cannot_be_rewritten(database: Database, table: str) -> None:
    declare(database, "a")
    with database.engine.begin() as connection:
        connection.execute(text("INSERT INTO spec_versions VALUES ('s', 1, 'draft', 1, '{}')"))
        connection.execute(text("INSERT INTO document_versions VALUES ('view', 'a', 1, 1, '{}')"))
        connection.execute(text("INSERT INTO requests VALUES (1, 1, 'attribute', 'a', '', '{}', '[]')"))
        connection.execute(text("INSERT INTO request_steps VALUES (1, 1, 1, 'refused', '', '[]', NULL)"))
    columns = {column["name"] for column in inspect(database.engine).get_columns(table)} - {"status"}
    for statement in [
        f"DELETE FROM {table}",
        *(f"UPDATE {table} SET {column} = {column}" for column in columns),
    ]:
        with pytest.raises(SQLAlchemyError, match="append-only"), database.engine.begin() as connection:
            connection.execute(text(statement))


def test_a_failed_edit_leaves_nothing(database: Database) -> None:
    before = database.revision()
    definition = AttributeDefinition(path="a", data_type=DataType.STRING)
    woken: list[bool] = []
    database.listeners.append(lambda: woken.append(True))

    def write_and_fail() -> None:
        with database.write("admin") as edit:
            carry_out(edit, plan_attribute(edit, definition, lambda _known: None))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        write_and_fail()
    assert (database.revision(), woken) == (before, [])
    declare(database, "a")
    assert (database.revision().version, woken) == (1, [True])


def test_versions_are_gapless_under_concurrent_writers(database: Database) -> None:
    def write(number: int) -> None:
        for turn in range(10):
            declare(database, f"a{number}", f"{turn}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert database.revision().version == 40
    with database.read() as session:
        page = list_changes(session, PageRequest(None, 1000))
    assert [line.snapshot_version for line in page.items] == list(range(40, 0, -1))


def test_who_writes_waits_so_long_for_another_and_no_longer(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found on PostgreSQL: all connections waited for one slow writer, and none was left to read by."""
    monkeypatch.setattr("metadata_service.storage.database.BUSY_MILLISECONDS", 200)
    with closing(open_database(database_url)) as database:
        with database.write() as slow:
            slow.record("token", "slow", None, "made")
            with pytest.raises(OperationalError), database.write() as other:
                other.record("token", "other", None, "made")
        declare(database, "a")
        assert database.revision().version == 2


PROCESS = """
import sys
from metadata_service.storage.database import open_database
from metadata_service.attributes.discovery import apply_schema_changes
database = open_database(sys.argv[1])
print("ready", flush=True)
sys.stdin.readline()
for start in range(0, 50, 5):
    changes = [
        {"path": f"a{number}", "data_type": sys.argv[2], "source": sys.argv[3], "first_event": "file:f#1"}
        for number in range(start, start + 5)
    ]
    with database.write(sys.argv[3]) as edit:
        answer = apply_schema_changes(edit, changes)
    print(answer.created, answer.conflicted, answer.refused)
database.close()
"""


def test_two_processes_find_the_same_attributes_at_once(database_url: str) -> None:
    # Neither finds tables: both also race to make them.
    def start(data_type: str, source: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", PROCESS, database_url, data_type, source]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    racers = [start("string", "one"), start("integer", "two")]
    for racer in racers:
        assert racer.stdout is not None
        assert racer.stdout.readline() == "ready\n"
    for racer in racers:
        assert racer.stdin is not None
        racer.stdin.write("\n")
        racer.stdin.flush()
    answers = [racer.communicate(timeout=60)[0].split() for racer in racers]
    assert [racer.returncode for racer in racers] == [0, 0]
    counts = [sum(map(int, answer[place::3])) for place in range(3) for answer in answers]
    assert counts[0] + counts[1] == 50, "each attribute was created once"
    assert counts[2] + counts[3] == 50, "and met the other type once"
    database = open_database(database_url)
    assert database.revision().version == 20
    with database.write() as edit:
        same = [{"path": "a0", "data_type": "string", "source": "s", "first_event": "f"}]
        assert apply_schema_changes(edit, same).unchanged == 1
    database.close()
