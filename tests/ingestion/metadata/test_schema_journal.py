"""The queue of schema changes in a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from idgraph.model.attributes import DataType
from idgraph.model.schema_changes import SchemaChange
from ingestion.metadata.schema_journal import SchemaJournal


def change(path: str) -> SchemaChange:
    return SchemaChange(path=path, data_type=DataType.STRING, source="shop", first_event="file:x#1")


def opened(path: Path) -> tuple[SchemaJournal, list[str]]:
    journal, seen = SchemaJournal(path), list[str]()
    journal.open(lambda change: seen.append(change.path))
    return journal, seen


def drained(journal: SchemaJournal, at_once: int = 3) -> list[str]:
    paths = []
    while (some := journal.first(at_once)).changes:
        paths += [change.path for change in some.changes]
        journal.take(some)
    return paths


def test_first_in_first_out_across_a_restart(tmp_path: Path) -> None:
    journal, seen = opened(tmp_path / "journal")
    assert (seen, journal.waiting) == ([], 0)
    journal.append(map(change, "abc"))
    journal.take(journal.first(1))
    journal.append(map(change, "de"))
    assert journal.waiting == 4
    again, seen = opened(tmp_path / "journal")
    # The one that was taken is retried, which has no effect.
    assert seen == list("abcde")
    assert drained(again) == list("abcde")
    assert drained(journal) == []


def test_a_file_that_somebody_cut_takes_new_changes(tmp_path: Path) -> None:
    journal, _ = opened(tmp_path / "journal")
    journal.append(map(change, "abcde"))
    journal.take(journal.first(2))
    (tmp_path / "journal").write_bytes(b"")
    journal.append([change("f")])
    assert drained(journal) == ["f"]
    journal.append([change("g")])
    assert drained(journal) == ["g"]
    assert journal.waiting == 0


def test_a_write_that_failed_half_way_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    journal, _ = opened(tmp_path / "journal")
    journal.append([change("a")])

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("ingestion.metadata.schema_journal.os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            journal.append([change("lost" * 100)])
    assert journal.waiting == 1
    journal.append([change("b")])
    assert drained(journal) == ["a", "b"]
    journal.append([change("c")])
    assert opened(tmp_path / "journal")[1] == ["c"]
