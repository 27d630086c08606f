"""A metadata database of version 2 is upgraded with its requests, and its history stays whole."""

from __future__ import annotations

import json
import sqlite3
import tarfile
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from idgraph.web.cursors import PageRequest
from metadata_service.attributes.policy_changes import approve, list_policy_changes
from metadata_service.storage import users
from metadata_service.storage.database import Database, open_database
from metadata_service.storage.grants import grants_in_force, list_grants
from metadata_service.storage.history import verify_history
from tests.upgrades.make_metadata_2 import ARCHIVE

ALL = PageRequest(None, 1000)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    with tarfile.open(ARCHIVE) as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


def opened(place: Path) -> Database:
    return open_database(f"sqlite:///{place / 'metadata.db'}")


def broken(database: Database) -> int | None:
    with database.read() as session:
        return verify_history(session, b"").broken_line


def test_requests_are_in_one_table_as_they_were(place: Path) -> None:
    expected = json.loads((place / "expected.json").read_text())
    at = datetime.fromisoformat(expected["at"])
    with closing(opened(place)) as database, database.read() as session:
        changes = list_policy_changes(session, ALL).items
        assert [each.model_dump(mode="json") for each in changes] == expected["policy_changes"]
        moved: list[dict[str, Any]] = [
            each | {"id": each["id"] + len(changes)} for each in expected["requests"]
        ]
        assert [each.model_dump(mode="json") for each in list_grants(session, ALL, at).items] == moved
        in_force = [each.model_dump(mode="json") for each in grants_in_force(session, at)]
        assert in_force == expected["in_force"]["grants"]
        assert users.record_of(users.get_user(session, "growth")).confirmed_by is None
    with closing(opened(place)) as database:
        assert broken(database) is None
        with database.write("officer") as edit:
            assert approve(edit, 1).status == "approved"
        assert broken(database) is None


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE policy_decisions SET decision = 'approved' WHERE decision = 'refused'",
        "UPDATE grant_requests SET purpose = 'another'",
        "UPDATE grant_answers SET levels = '[100]'",
        "UPDATE policy_changes SET weakens = '[]'",
        "DELETE FROM policy_decisions",
    ],
)
def test_a_row_that_was_altered_before_is_found_afterwards(place: Path, statement: str) -> None:
    with closing(sqlite3.connect(place / "metadata.db")) as connection, connection:
        for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            connection.execute(f"DROP TRIGGER {name}")
        connection.execute(statement)
    with closing(opened(place)) as database:
        assert broken(database) is not None
