"""A snapshot on disk, whole and with what changed: torn anywhere, kept by two, full disks."""

from __future__ import annotations

import errno
from itertools import pairwise
from pathlib import Path

import pytest

from idgraph import snapshot_file
from idgraph.snapshot_file import PinnedSnapshot, SnapshotFile, kept_snapshot
from tests.retail import attribute, snapshot, spec


def version(number: int) -> PinnedSnapshot:
    """Each with one attribute more than the one before, and another order of them."""
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


def test_only_what_changed_is_written(path: Path) -> None:
    file = SnapshotFile(path)
    file.keep(version(8))
    whole = path.read_bytes()
    file.keep(version(9))
    assert path.read_bytes().startswith(whole + b"\n")
    assert path.stat().st_size < 2 * len(whole)
    assert path.stat().st_size - len(whole) < 1500


def test_a_crash_anywhere_leaves_what_was_kept_before(path: Path) -> None:
    file = SnapshotFile(path)
    file.keep(version(1))
    file.keep(version(2))
    before = len(path.read_bytes())
    file.keep(version(3))
    content = path.read_bytes()
    for end in range(before, len(content)):
        path.write_bytes(content[:end])
        assert kept_snapshot(path) == version(2)
        # The process that is started after it writes the whole.
        if end % 97 == 0:
            another = SnapshotFile(path)
            another.keep(version(4))
            another.keep(version(5))
            assert kept_snapshot(path) == version(5)


def test_a_line_that_was_torn_is_in_nobodys_way(path: Path) -> None:
    file = SnapshotFile(path)
    file.keep(version(1))
    file.keep(version(2))
    with path.open("ab") as stream:
        stream.write(b'\n{"since":"\\"3-x')
    file.keep(version(3))
    assert kept_snapshot(path) == version(3)


def test_changes_of_something_else_are_left_out_and_reported(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = SnapshotFile(path)
    file.keep(version(1))
    file.keep(version(2))
    path.write_bytes(path.read_bytes().replace(b'"known_attributes":', b'"known_attributes":9'))
    assert kept_snapshot(path) == version(1)
    assert "left out" in caplog.text


def test_after_a_disk_that_was_full_the_whole_is_written(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = SnapshotFile(path)
    file.keep(version(1))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("os.fsync", full)
        with pytest.raises(OSError, match="No space"):
            file.keep(version(2))
    file.keep(version(3))
    assert kept_snapshot(path) == version(3)
    assert b"\n" not in path.read_bytes()


def test_changes_do_not_grow_without_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_file, "LEAST_CHANGES", 2000)
    file = SnapshotFile(path)
    sizes = []
    for number in range(1, 11):
        file.keep(version(number))
        sizes.append(path.stat().st_size)
        assert kept_snapshot(path) == version(number)
    assert any(later < earlier for earlier, later in pairwise(sizes))
