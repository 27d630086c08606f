from __future__ import annotations

import errno
import gzip
import io
import os
from pathlib import Path
from typing import Any

import pytest

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import SourceUnavailableError
from idgraph.model.events import RawRecord
from ingestion.sources.files import lines as files
from ingestion.sources.files.lines import DamagedRecord, read_records

LINES = [b'{"n":%d}' % n for n in range(5000)]


def write(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["events.jsonl", "events.jsonl.gz"])
@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n\n  \n"])
def test_every_line_once_in_order_with_its_number(tmp_path: Path, name: str, end: bytes) -> None:
    read = list(read_records(write(tmp_path / name, b"\n".join(LINES) + end), "s", 1000))
    assert [record.value.strip() for record in read if isinstance(record, RawRecord)] == LINES
    assert read[41].position == f"file:{tmp_path.name}/{name}#42"  # type: ignore[union-attr]


def test_lines_longer_than_a_chunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "CHUNK", 7)
    content = [b"a" * n for n in (1, 6, 7, 8, 50)]
    read = read_records(write(tmp_path / "x.jsonl", b"\n".join(content)), "s", 1000)
    assert [record.value for record in read if isinstance(record, RawRecord)] == content


@pytest.mark.parametrize("chunk", [5, 1 << 20])
def test_an_over_long_line_hurts_only_itself(
    tmp_path: Path, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "CHUNK", chunk)
    read = list(read_records(write(tmp_path / "x.jsonl", b"one\n" + b"y" * 500 + b"\nthree\n"), "s", 100))
    assert isinstance(read[1], DamagedRecord)
    assert read[1].reason is DeadLetterReason.TOO_LARGE
    assert read[1].record.value == b"y" * 100
    assert "500 bytes" in read[1].detail
    assert [r.value for r in read if isinstance(r, RawRecord)] == [b"one", b"three"]


def test_truncated_gzip_keeps_what_is_whole_and_says_where_it_ends(tmp_path: Path) -> None:
    whole = gzip.compress(b"\n".join(LINES) + b"\n", mtime=0)
    for cut in (len(whole) // 2, len(whole) - 4, 12):
        (tmp_path / "x.jsonl.gz").write_bytes(whole[:cut])
        *good, bad = read_records(tmp_path / "x.jsonl.gz", "s", 1000)
        assert isinstance(bad, DamagedRecord)
        assert bad.reason is DeadLetterReason.CORRUPT_SOURCE
        assert bad.record.position.endswith(f"#{len(good) + 1}")
        assert [record.value for record in good if isinstance(record, RawRecord)] == LINES[: len(good)]


def test_not_gzip_at_all(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl.gz").write_bytes(b"plain text")
    (bad,) = read_records(tmp_path / "x.jsonl.gz", "s", 1000)
    assert isinstance(bad, DamagedRecord)
    assert bad.reason is DeadLetterReason.CORRUPT_SOURCE


def test_a_file_that_is_gone_is_damage_not_a_crash(tmp_path: Path) -> None:
    (bad,) = read_records(tmp_path / "gone.jsonl", "s", 1000)
    assert isinstance(bad, DamagedRecord)


class _BadSector(io.BytesIO):
    """Content of which the disk gives no more than its first half."""

    def read(self, size: int | None = -1, /) -> bytes:
        left = len(self.getbuffer()) // 2 - self.tell()
        if not left:
            raise OSError(errno.EIO, os.strerror(errno.EIO), "/in/ann@example.com")
        return super().read(left if size is None or size < 0 else min(size, left))

    read1 = read


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_what_a_disk_does_not_give_may_pass_until_the_last_attempt(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by review: any such error stopped the flow at each of its starts, and named no file."""
    path = write(tmp_path / name, b"\n".join(LINES))

    monkeypatch.setattr(files, "_open", lambda path, *_: _BadSector(path.read_bytes()))
    *good, bad = read_records(path, "s", 1000)
    assert isinstance(bad, DamagedRecord)
    assert bad.reason is DeadLetterReason.CORRUPT_SOURCE
    # Of a packed file those go too that were read ahead and not yet unpacked.
    assert len(good) > 100
    assert [record.value for record in good if isinstance(record, RawRecord)] == LINES[: len(good)]
    assert LINES[len(good)].startswith(bad.record.value)
    assert bad.record.position == f"file:{tmp_path.name}/{name}#{len(good) + 1}"
    assert "Input/output error; publish it again whole" in bad.detail
    with pytest.raises(SourceUnavailableError) as raised:
        list(read_records(path, "s", 1000, is_last=False))
    assert str(raised.value) == f"source s: {bad.record.position}: Input/output error"


@pytest.mark.parametrize(("number", "may_pass"), [(errno.ESTALE, True), (errno.EACCES, False)])
def test_a_file_that_cannot_be_opened(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, may_pass: bool
) -> None:
    path = write(tmp_path / "x.jsonl", b"{}")

    def refuse(path: Path, flags: int) -> int:
        raise OSError(number, os.strerror(number), str(path))

    monkeypatch.setattr(os, "open", refuse)
    (bad,) = read_records(path, "s", 1000)
    assert isinstance(bad, DamagedRecord)
    assert os.strerror(number) in bad.detail
    assert str(path) not in bad.detail
    if may_pass:
        with pytest.raises(SourceUnavailableError, match=f"x.jsonl#1: {os.strerror(number)}"):
            list(read_records(path, "s", 1000, is_last=False))
    else:
        assert list(read_records(path, "s", 1000, is_last=False)) == [bad]


def refused(path: Path, root: Path, **options: Any) -> str:
    """Why a file is not read."""
    (bad,) = read_records(path, "s", 1000, root, is_last=False, **options)
    assert isinstance(bad, DamagedRecord)
    assert (bad.reason, bad.record.value) == (DeadLetterReason.CORRUPT_SOURCE, b"")
    assert str(root.parent) not in bad.detail
    return bad.detail


def test_links_are_not_followed_unless_the_source_says_so(tmp_path: Path) -> None:
    """Found by review: a link in an inbox had any file read that the flow may read, its keyring too."""
    own, inbox, elsewhere = tmp_path / "own", tmp_path / "inbox", tmp_path / "elsewhere"
    for folder in (own, inbox, elsewhere):
        folder.mkdir()
    keyring = write(own / "keyring.json", b'{"root": "secret"}')
    write(elsewhere / "a.jsonl", b'{"a": 1}')
    (inbox / "k.jsonl").symlink_to(keyring)
    (inbox / "a.jsonl").symlink_to(elsewhere / "a.jsonl")
    (inbox / "folder").symlink_to(elsewhere)
    for name in ("k.jsonl", "a.jsonl", "folder/a.jsonl"):
        assert "follow_links" in refused(inbox / name, inbox)
    for name in ("a.jsonl", "folder/a.jsonl"):
        (record,) = read_records(inbox / name, "s", 1000, inbox, follow_links=True, closed=[own])
        assert isinstance(record, RawRecord)
    assert "own folder" in refused(inbox / "k.jsonl", inbox, follow_links=True, closed=[own])
    assert "own folder" in refused(keyring, tmp_path, closed=[own])
    # The source's directory may be a link itself: its owner said so.
    (tmp_path / "in").symlink_to(inbox)
    write(inbox / "b.jsonl", b"{}")
    (record,) = read_records(tmp_path / "in" / "b.jsonl", "s", 1000, tmp_path / "in")
    assert isinstance(record, RawRecord)


def test_what_is_no_regular_file_is_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jsonl")
    (tmp_path / "folder.jsonl").mkdir()
    for name in ("pipe.jsonl", "folder.jsonl"):
        assert "no regular file" in refused(tmp_path / name, tmp_path)


def test_a_byte_order_mark_is_not_part_of_the_first_record(tmp_path: Path) -> None:
    (record,) = read_records(write(tmp_path / "x.jsonl", b'\xef\xbb\xbf{"a":1}\n'), "s", 1000)
    assert isinstance(record, RawRecord)
    assert record.value == b'{"a":1}'


def test_positions_of_files_in_sub_directories_differ(tmp_path: Path) -> None:
    """Found by review: a dead letter of one file replaced that of another."""
    positions = set()
    for name in ("a/2024/x.jsonl", "b/2024/x.jsonl", "x.jsonl", "long" * 50 + "/" + "y" * 200 + ".jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (record,) = read_records(write(tmp_path / name, b"{}"), "s", 1000, tmp_path)
        assert isinstance(record, RawRecord)
        positions.add(record.position)
    assert len(positions) == 4
    assert f"file:{tmp_path.name}/a/2024/x.jsonl#1" in positions
