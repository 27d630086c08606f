"""The audit log: whatever is altered without the key is found."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from idgraph.model.errors import StoreError
from idgraph.web.audit import AuditLog

KEY = b"a key of the tests"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    file = tmp_path / "audit.jsonl"
    log = AuditLog(file, KEY)
    for number in range(4):
        log.append({"action": "reveal", "number": number})
    return file


def test_what_is_written_is_whole(file: Path) -> None:
    report = AuditLog(file, KEY).verify()
    assert (report.entries, report.broken_line) == (4, None)
    assert report.head in file.read_text().splitlines()[-1]
    assert file.stat().st_mode & 0o077 == 0
    assert AuditLog(file.with_name("none"), KEY).verify().entries == 0


@pytest.mark.parametrize("line", range(4))
def test_an_altered_line_is_found(file: Path, line: int) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    lines[line] = lines[line].replace(b"reveal", b"remove")
    file.write_bytes(b"".join(lines))
    assert AuditLog(file, KEY).verify().broken_line == line + 1


@pytest.mark.parametrize("line", range(3))
def test_a_removed_line_is_found(file: Path, line: int) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    del lines[line]
    file.write_bytes(b"".join(lines))
    assert AuditLog(file, KEY).verify().broken_line == line + 1


def test_a_repeated_line_and_another_key_are_found(file: Path) -> None:
    assert AuditLog(file, b"another").verify().broken_line == 1
    content = file.read_bytes()
    file.write_bytes(content + content.splitlines(keepends=True)[-1])
    assert AuditLog(file, KEY).verify().broken_line == 5


def test_a_cut_end_changes_the_head(file: Path) -> None:
    before = AuditLog(file, KEY).verify().head
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))
    assert AuditLog(file, KEY).verify().head != before


def test_a_line_that_a_crash_tore_is_dropped(file: Path) -> None:
    with file.open("ab") as stream:
        stream.write(b'{"action":"re')
    AuditLog(file, KEY).append({"action": "reveal", "number": 5})
    assert AuditLog(file, KEY).verify()[::2] == (5, None)


@pytest.mark.parametrize("size", [1 << 16, 3 << 20])
def test_a_long_line_does_not_break_the_chain(file: Path, size: int) -> None:
    log = AuditLog(file, KEY)
    log.append({"action": "reveal", "attributes": ["x" * size]})
    log.append({"action": "reveal", "number": 5})
    with file.open("ab") as stream:
        stream.write(b'{"action":"' + b"x" * size)
    log.append({"action": "reveal", "number": 6})
    assert AuditLog(file, KEY).verify()[::2] == (7, None)


def test_several_writers(file: Path) -> None:
    def write() -> None:
        log = AuditLog(file, KEY)
        for _ in range(20):
            log.append({"action": "reveal"})

    threads = [threading.Thread(target=write) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert AuditLog(file, KEY).verify()[::2] == (84, None)


def test_a_log_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StoreError):
        AuditLog(tmp_path / "no folder" / "audit.jsonl", KEY).append({})


def test_the_newest_are_read_backward_in_pages(tmp_path: Path) -> None:
    log = AuditLog(tmp_path / "audit.jsonl", b"k" * 32)
    assert log.newest(5) == ([], None)
    for number in range(50):
        log.append({"action": "a" if number % 2 else "b", "number": number, "long": "x" * (number * 2000)})
    seen: list[int] = []
    place = None
    while True:
        found, place = log.newest(7, place, lambda entry: entry["action"] == "a")
        seen += [each["number"] for each in found]
        assert all("mac" not in each for each in found)
        if place is None:
            break
    assert seen == list(range(49, 0, -2))
    assert log.verify().entries == 50


def test_another_key_does_not_continue_a_log(tmp_path: Path) -> None:
    file = tmp_path / "audit.jsonl"
    AuditLog(file, b"a" * 32).append({"action": "one"})
    for _ in range(2):
        with pytest.raises(StoreError, match="another keyring"):
            AuditLog(file, b"b" * 32).append({"action": "two"})
    AuditLog(file, b"a" * 32).append({"action": "three"})
    assert AuditLog(file, b"a" * 32).verify().entries == 2
    kept = AuditLog(file, b"b" * 32).set_aside()
    assert kept is not None
    AuditLog(file, b"b" * 32).append({"action": "four"})
    assert AuditLog(file, b"b" * 32).verify().entries == 1
    assert AuditLog(kept, b"a" * 32).verify().entries == 2
