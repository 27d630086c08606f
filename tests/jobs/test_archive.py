"""A backfill's archive: its files, and how far it has come, whatever was interrupted."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from idgraph.jobs.archive import archive_files, archive_path, bytes_an_event
from idgraph.model.errors import ConfigError
from idgraph.model.sources import FileSource


def config(path: Path) -> FileSource:
    return FileSource(name="web", path=archive_path(path))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (
        "a.jsonl",
        "2024/01/b.jsonl.gz",
        ".part",
        "_SUCCESS",
        "_temporary/c.jsonl",
        ".hidden/d.jsonl",
        "_metadata.jsonl",
        "e.jsonl._COPYING_",
    ):
        file = tmp_path / "archive" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"{}\n")
    return tmp_path / "archive"


def test_the_files_of_a_directory_are_those_that_spark_sees(folder: Path) -> None:
    assert sorted(archive_files(config(folder))) == [folder / "2024/01/b.jsonl.gz", folder / "a.jsonl"]


def test_a_glob_and_a_single_file(folder: Path) -> None:
    (folder / "ab.jsonl").write_bytes(b"{}\n")
    assert sorted(archive_files(config(folder / "a*.jsonl"))) == [folder / "a.jsonl", folder / "ab.jsonl"]
    assert list(archive_files(config(folder / "a.jsonl"))) == [folder / "a.jsonl"]


def test_a_path_is_named_as_spark_names_it(folder: Path) -> None:
    assert archive_path(folder / "2024" / "..") == folder
    assert archive_path(folder / "2024" / ".." / "*.jsonl") == folder / "*.jsonl"


def test_a_name_with_an_equals_sign_is_not_hidden(folder: Path) -> None:
    for name in ("_day=1/a.jsonl", "_b=2.jsonl"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(b"{}\n")
        assert folder / name in set(archive_files(config(folder)))


def test_empty_files_are_none(folder: Path) -> None:
    (folder / "empty.jsonl").touch()
    assert folder / "empty.jsonl" not in archive_files(config(folder))
    assert list(archive_files(config(folder / "empty.jsonl"))) == []


def test_files_behind_links_are_taken_by_the_links_name(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "c.jsonl").write_bytes(b"{}\n")
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    (folder / "link.jsonl").symlink_to(tmp_path / "elsewhere" / "c.jsonl")
    (folder / "nowhere.jsonl").symlink_to(tmp_path / "none")
    found = set(archive_files(config(folder)))
    assert {folder / "linked" / "c.jsonl", folder / "link.jsonl"} < found
    assert folder / "nowhere.jsonl" not in found
    assert set(archive_files(config(folder / "*.jsonl"))) == {folder / "a.jsonl", folder / "link.jsonl"}


@pytest.mark.parametrize("target", ["", "2024"])
def test_a_link_to_a_directory_that_it_is_in_is_refused(folder: Path, target: str) -> None:
    (folder / "2024" / "loop").symlink_to(folder / target)
    with pytest.raises(ConfigError, match="loop: links to a directory that it is in"):
        list(archive_files(config(folder)))


@pytest.mark.parametrize("name", ["nothing", "nothing/*.jsonl"])
def test_what_is_not_there_is_reported(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="no such directory"):
        archive_path(tmp_path / name)


@pytest.mark.parametrize("name", ["a!", "a!^-", "!a", "-a", "a.jsonl"])
def test_a_file_of_any_other_name_is_taken(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"{}\n")
    (tmp_path / "b.jsonl").write_bytes(b"{}\n")
    assert list(archive_files(config(tmp_path / name))) == [tmp_path / name]


@pytest.mark.parametrize("name", ["a{1}.jsonl", "a[1].jsonl", "a?.jsonl", "*.jsonl"])
def test_a_name_that_is_a_pattern_too_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    (tmp_path / "a1.jsonl").touch()
    with pytest.raises(ConfigError, match="name of this file is a pattern, too; give its directory"):
        archive_path(tmp_path / name)
    (tmp_path / "b[1]").mkdir()
    with pytest.raises(ConfigError, match="name of this directory is a pattern"):
        archive_path(tmp_path / "b[1]")


def test_bytes_an_event_are_those_on_disk(tmp_path: Path) -> None:
    lines = b"".join(b'{"number": %06d}\n' % number for number in range(20_000))
    (tmp_path / "a.jsonl").write_bytes(lines)
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(lines))
    (tmp_path / "damaged.gz").write_bytes(gzip.compress(lines)[:100])
    (tmp_path / "empty.jsonl").touch()
    assert 18 <= bytes_an_event(tmp_path / "a.jsonl") < 25
    assert 0 < bytes_an_event(tmp_path / "a.jsonl.gz") < 10
    assert bytes_an_event(tmp_path / "damaged.gz") > 0
    assert bytes_an_event(tmp_path / "empty.jsonl") > 0


def test_the_sample_holds_no_line_without_bound(tmp_path: Path) -> None:
    file = tmp_path / "long.jsonl.gz"
    file.write_bytes(gzip.compress(b"x" * 100_000_000 + b"\n" + b"{}\n" * 9))
    tracemalloc.start()
    try:
        assert bytes_an_event(file) == file.stat().st_size / 10
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()
