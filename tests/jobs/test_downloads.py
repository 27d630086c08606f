"""Documents of jobs: one that cannot be read hurts no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from idgraph.jobs.downloads import Downloads
from idgraph.model.tombstones import TombstoneNames
from tests.support.memory.key_provider import FixedProvider
from transforms.privacy.record_sealing import DeadLetterSealer


def name(fragment_id: str) -> bytes:
    return fragment_id.encode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "downloads"


@pytest.fixture
def downloads(folder: Path) -> Downloads:
    names: TombstoneNames = name
    found = Downloads(folder, DeadLetterSealer(FixedProvider()), names, lambda: 0)
    for job, fragment in (("ann", "user_id:1"), ("bob", "user_id:2")):
        found.keep(job, job.encode(), [fragment], 1)
    return found


@pytest.mark.parametrize(
    "head", [b"", b"nonsense\n", b"5\n", b"{}\n", json.dumps({"expires_ms": None}).encode()]
)
def test_a_damaged_document_hurts_no_other(downloads: Downloads, folder: Path, head: bytes) -> None:
    (folder / "alone").write_bytes(head)
    assert downloads.read("alone") is None
    found = downloads.read("bob")
    assert found is not None
    assert found.content == b"bob"
    assert (folder / "alone").exists()
    # It may be of anybody.
    downloads.erase(["user_id:1"])
    assert sorted(each.name for each in folder.iterdir()) == ["bob"]


def test_a_folder_in_place_of_a_document_hurts_no_other(downloads: Downloads, folder: Path) -> None:
    (folder / "alone").mkdir()
    assert downloads.read("ann") is not None
    assert downloads.read("alone") is None
