"""What dead letters in a file do beside what all of them promise."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from idgraph.model.dead_letters import DeadLetter
from sinks.sqlite.database import SqliteFile
from sinks.sqlite.dead_letters import SqliteDeadLetters
from tests.contracts.test_dead_letters import dead_letter


def test_a_page_of_heavy_dead_letters_is_small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A hundred of the largest would be gigabytes."""
    read: list[int] = []
    plain = SqliteFile.read

    def noted(self: SqliteFile, work: Callable[[sqlite3.Connection], list[DeadLetter]]) -> list[DeadLetter]:
        page = plain(self, work)
        read.append(sum(len(each.payload) for each in page))
        return page

    with closing(SqliteDeadLetters(tmp_path / "letters.db")) as dead_letters:
        dead_letters.put(
            [dead_letter(f"{number:03}")._replace(payload=b"x" * (1 << 20)) for number in range(20)]
        )
        monkeypatch.setattr(SqliteFile, "read", noted)
        assert sum(1 for _ in dead_letters.scan()) == 20
    assert max(read) <= 4 << 20
