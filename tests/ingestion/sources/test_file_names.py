"""File names that are personal data do not get into positions."""

from __future__ import annotations

from pathlib import Path

import pytest

from idgraph.model.events import RawRecord
from idgraph.model.sources import FileSource
from ingestion.sources.files.lines import FileNames, looks_sensitive, read_records
from sinks.keyring.provider import KeyringFile
from transforms.privacy.blind_index import BlindIndex

SENSITIVE = [
    "ann.lee@example.com.jsonl",
    "export_ann.lee@example.com_2024-03-01.jsonl.gz",
    "export-ann@example.com.jsonl",
    "customers/ann@example.com/orders.jsonl",
    "415-555-2671.json",
    "calls_+14155552671.jsonl.gz",
    "email=ann@example.com/part-0.jsonl",
    "4111111111111111.jsonl",
    "4111111111111111-export.jsonl",
    "export-ann@example.com-2024.jsonl",
]
HARMLESS = [
    "000001.jsonl",
    "2024-03-01T00:00:00Z.jsonl.gz",
    "orders/2024/03/01/part-00000-6f1c2d0a-7a5e-4bd0-9a77-4a3f0d0f1a2b-c000.jsonl.gz",
    "1709251200000.jsonl",
    "web-20240301-000017.jsonl",
    "web-20240301120000-1709251200000.jsonl",
    "xJ4kQ9ZpW2mT7vB1cR8sL0aN.jsonl",
]


@pytest.mark.parametrize("name", SENSITIVE)
def test_what_looks_like_personal_data_is_found(name: str) -> None:
    assert looks_sensitive(name)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_systems_call_their_files_stays(name: str) -> None:
    assert not looks_sensitive(name)


@pytest.mark.parametrize(
    ("name", "hashes", "is_shown"),
    [("ann@example.com.jsonl", False, False), ("x.jsonl", True, False), ("x.jsonl", False, True)],
)
def test_a_position_shows_a_keyed_hash(tmp_path: Path, name: str, hashes: bool, is_shown: bool) -> None:
    names = FileNames(BlindIndex(KeyringFile.create(tmp_path / "keyring.json")))
    source = FileSource(name="web", path=tmp_path / "in", hash_file_names=hashes)
    source.path.mkdir()
    (source.path / name).write_bytes(b"{}\n{}\n")
    read = read_records(source.path / name, "web", 100, source.path, lambda each: names.shown(each, source))
    positions = [record.position for record in read if isinstance(record, RawRecord)]
    assert len(positions) == 2
    assert all(position.startswith("file:in/") for position in positions)
    assert [name in position for position in positions] == [is_shown] * 2
    assert len({position.rpartition("#")[0] for position in positions}) == 1
