"""The archive of Spark's classes: asked for once, taken over when written, the old ones thrown away."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ingestion.spark.session_options import KEPT, WRITTEN_SECONDS, archive_options

pytestmark = pytest.mark.usefixtures("java")


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.touch()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))


def asked_for(folder: Path) -> Path:
    option, *_ = archive_options(folder)
    assert option.startswith("-XX:ArchiveClassesAtExit=")
    return Path(option.partition("=")[2])


def test_what_a_run_wrote_is_used_by_the_next(tmp_path: Path) -> None:
    part = asked_for(tmp_path / "cache")
    part.write_bytes(b"classes")
    # It may still be being written.
    assert asked_for(tmp_path / "cache") == part
    long_ago = time.time() - WRITTEN_SECONDS - 1
    os.utime(part, (long_ago, long_ago))
    option, *_ = archive_options(tmp_path / "cache")
    assert option == f"-XX:SharedArchiveFile={part.with_name(part.name.split('.')[0] + '.jsa')}"
    assert not part.exists()


@pytest.mark.parametrize("cut_short", [b"", bytes(4096)])
def test_what_a_kill_cut_short_is_thrown_away(tmp_path: Path, cut_short: bytes) -> None:
    part = asked_for(tmp_path / "cache")
    part.write_bytes(cut_short)
    os.utime(part, (1, 1))
    assert asked_for(tmp_path / "cache") == part
    assert not part.exists()


def test_another_java_has_another_archive_and_few_are_kept(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    names = set()
    for number in range(KEPT + 2):
        os.utime(tmp_path / "jdk" / "bin" / "java", (number, number))
        part = asked_for(cache)
        names.add(part.name)
        archive = cache / f"{part.name.split('.')[0]}.jsa"
        archive.touch()
        os.utime(archive, (number, number))
    assert len(names) == KEPT + 2
    assert len(list(cache.glob("*.jsa"))) == KEPT


def test_without_a_place_a_start_is_only_slower(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    assert archive_options(tmp_path / "file") == []
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))
    assert archive_options(tmp_path / "cache") == []
