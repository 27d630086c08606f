"""A snapshot on disk."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from idgraph.model.snapshots import PinnedSnapshot
from idgraph.snapshot_file import SnapshotFile, kept_snapshot
from tests.retail import attribute, snapshot, spec


def version(number: int) -> PinnedSnapshot:
    """Each with one attribute more than the one before."""
    return _VERSIONS[number]


def _versions(count: int) -> list[PinnedSnapshot]:
    known = [attribute(f"p{number * 7 % count}") for number in range(count)]
    specs = [spec("segment")]
    return [
        PinnedSnapshot(f'"{n}-x"', snapshot(n, specs, sorted(known[:n], key=lambda each: each.path)))
        for n in range(count)
    ]


_VERSIONS = _versions(11)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "snapshot.json"


def test_what_was_kept_last_is_read(path: Path) -> None:
    file = SnapshotFile(path)
    for number in (1, 2, 5, 5, 3, 4, 9):
        file.keep(version(number))
        assert kept_snapshot(path) == version(number)
    file.keep(PinnedSnapshot('"9-y"', version(9).snapshot))
    kept = kept_snapshot(path)
    assert kept is not None
    assert kept.etag == '"9-y"'


def test_a_snapshot_with_changes_of_an_earlier_idgraph_is_left_and_reported(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Without them it may protect less than it did last."""
    SnapshotFile(path).keep(version(1))
    path.write_bytes(path.read_bytes() + b'\n{"since":"\\"1-x')
    assert kept_snapshot(path) is None
    assert "earlier idgraph" in caplog.text


def test_a_full_disk_leaves_what_was_kept_before(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SnapshotFile(path)
    file.keep(version(1))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            file.keep(version(2))
    assert kept_snapshot(path) == version(1)
    file.keep(version(3))
    assert kept_snapshot(path) == version(3)
