"""The audit log: whatever is altered without the key is found."""

from __future__ import annotations

from pathlib import Path

import pytest

from idgraph.model.errors import StoreError
from idgraph.web.audit import AuditFile, AuditLog

KEY = b"a key of the tests"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "audit.jsonl"
    log = AuditLog(AuditFile(file), KEY)
    for number in range(4):
        log.append({"action": "reveal", "number": number})
    return file


def test_what_is_written_is_whole(file: Path) -> None:
    report = AuditLog(AuditFile(file), KEY).verify()
    assert (report.entries, report.broken_line) == (4, None)
    assert report.head in file.read_text().splitlines()[-1]
    assert file.stat().st_mode & 0o077 == 0
    assert AuditLog(AuditFile(file.with_name("none")), KEY).verify().entries == 0


@pytest.mark.parametrize("line", range(4))
def test_an_altered_line_is_found(file: Path, line: int) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b"reveal", b"remove")
    file.write_bytes(b"".join(lines))
    assert AuditLog(AuditFile(file), KEY).verify().broken_line == line + 1


@pytest.mark.parametrize("line", range(3))
def test_a_removed_line_is_found(file: Path, line: int) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    del lines[line]
    file.write_bytes(b"".join(lines))
    assert AuditLog(AuditFile(file), KEY).verify().broken_line == line + 1


def test_a_repeated_line_and_another_key_are_found(file: Path) -> None:
    assert AuditLog(AuditFile(file), b"another").verify().broken_line == 1
    content = file.read_bytes()
    file.write_bytes(content + content.splitlines(keepends=True)[-1])
    assert AuditLog(AuditFile(file), KEY).verify().broken_line == 5


def test_a_cut_end_changes_the_head(file: Path) -> None:
    before = AuditLog(AuditFile(file), KEY).verify().head
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    assert AuditLog(AuditFile(file), KEY).verify().head != before


def test_a_line_that_a_crash_tore_is_dropped(file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(b'{"action":"re')
    AuditLog(AuditFile(file), KEY).append({"action": "reveal", "number": 5})
    assert AuditLog(AuditFile(file), KEY).verify()[::2] == (5, None)


@pytest.mark.parametrize("size", [1 << 16, 3 << 20])
def test_a_long_line_does_not_break_the_chain(file: Path, size: int) -> None:
    log = AuditLog(AuditFile(file), KEY)
    log.append({"action": "reveal", "attributes": ["x" * size]})
    log.append({"action": "reveal", "number": 5})
    with file.open("ab") as stream:
        stream.write(b'{"action":"' + b"x" * size)
    log.append({"action": "reveal", "number": 6})
    assert AuditLog(AuditFile(file), KEY).verify()[::2] == (7, None)


def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        AuditLog(AuditFile(tmp_path / "no folder" / "audit.jsonl"), KEY).append({})


def test_a_log_that_was_set_aside_stays_whole(tmp_path: Path) -> None:
    AuditLog(AuditFile(tmp_path / "audit.jsonl"), b"a" * 32).append({"action": "one"})
    kept = AuditLog(AuditFile(tmp_path / "audit.jsonl"), b"b" * 32).set_aside()
    assert kept is not None
    assert AuditLog(AuditFile(Path(kept)), b"a" * 32).verify().entries == 1
