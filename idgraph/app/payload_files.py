"""Files of events: JSON Lines as they are; Parquet, CSV, JSON arrays and JSON over several lines are converted."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
import sys
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import chain, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from idgraph.app.payload_lines import unpacked
from idgraph.app.payload_rows import Nulls, line_of, rows_of_parquet
from idgraph.model import canonical
from idgraph.model.errors import ConfigError

STANDARD_INPUT = Path("-")
LARGEST_BYTES = 1 << 30
"""The largest converted file, which is in memory as a whole; and the longest line."""
LOOKED_AT = 100
"""Lines at the beginning of a file, one of which at least is an object where it is JSON Lines."""

_OTHERS = {
    b"PK\x03\x04": "a zip file or an Excel sheet",
    b"\xd0\xcf\x11\xe0": "an Excel sheet",
    b"\x28\xb5\x2f\xfd": "packed by zstd",
    b"BZh": "packed by bzip2",
    b"\xfd7zXZ": "packed by xz",
    b"ARROW1": "an Arrow file",
    b"Obj\x01": "Avro",
    b"ORC": "ORC",
    b"SQLite format 3": "an SQLite database",
    b"%PDF": "a PDF",
    codecs.BOM_UTF16_LE: "text in UTF-16",
    codecs.BOM_UTF16_BE: "text in UTF-16",
}
_DELIMITERS = ",;\t|"
_NO_NAME = re.compile(r"\s*|.*@.*|[+-]?[\d.,:/TZ -]*\d[\d.,:/TZ -]*")
"""A cell of a first line that is a value, and not the name of a column."""
_TAKEN = "JSON Lines, a JSON array, CSV with a header, or Parquet"
_BLANK = re.compile(r"\s*")
_SCANNER = json.JSONDecoder()


class EventFile(NamedTuple):
    """The events of a file as lines. `form` is the name of its format, empty for JSON Lines, which pass as they are."""

    name: str
    form: str
    lines: Iterator[bytes]


def event_files(files: Iterable[Path], nulls: Nulls | None = None) -> Iterator[EventFile]:
    """The events of each file; `-` is standard input. All files but pipes are checked before the first event
    is yielded, and read to their end where they are converted. `nulls` is the meaning of a missing value or
    null, None for the default of each format: a null of JSON deletes, others keep. Raises ConfigError for a
    file without events, or that is damaged."""
    named = [("standard input" if file == STANDARD_INPUT else str(file), file) for file in files]
    for name, file in named:
        if not _is_read_once(file):
            with _opened(name, file) as stream:
                found = _look(name, stream, nulls)
                if found.form:
                    deque(found.lines, maxlen=0)
    for name, file in named:
        with _opened(name, file) as stream:
            found = _look(name, stream, nulls)
            if found.form and _is_read_once(file):
                found = found._replace(lines=iter(list(found.lines)))
            yield found


def _is_read_once(file: Path) -> bool:
    return file == STANDARD_INPUT or not file.is_file()


@contextmanager
def _opened(name: str, file: Path) -> Iterator[BinaryIO]:
    with (
        _reading(name),
        sys.stdin.buffer if file == STANDARD_INPUT else file.open("rb") as raw,
        unpacked(raw) as stream,
    ):
        yield stream


@contextmanager
def _reading(name: str) -> Iterator[None]:
    """Raises ConfigError for an error while a file is read."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or f"{type(error).__name__}: {error}"
        raise ConfigError(f"{name}: {reason}; the lines before it were published") from None


def _look(name: str, stream: BinaryIO, nulls: Nulls | None) -> EventFile:
    first = _first_line(stream)
    for beginning, what in _OTHERS.items():
        if first.startswith(beginning):
            raise ConfigError(f"{name}: is {what}; publish takes {_TAKEN}, in UTF-8")
    if first.startswith(b"PAR1"):
        return EventFile(name, "Parquet", _parquet(name, _whole(name, first, stream), nulls or Nulls.KEEP))
    if b"\x00" in first:
        raise ConfigError(f"{name}: is binary, or text in UTF-16; publish takes {_TAKEN}, in UTF-8")
    first = first.removeprefix(codecs.BOM_UTF8).lstrip()
    if not first:
        return EventFile(name, "", iter(()))
    if first[:1] in b"[{" and not _is_object(first):
        first, stream = _whole(name, first, stream), io.BytesIO()
        events = _objects(first)
        if events is not None:
            form = "a JSON array" if first[:1] == b"[" else "JSON over several lines"
            return EventFile(name, form, (line_of(each, nulls or Nulls.DELETE) for each in events))
    lines = chain(io.BytesIO(first), stream)
    seen: list[bytes] = []
    for line in islice(lines, LOOKED_AT):
        seen.append(line)
        if _is_object(line):
            return EventFile(name, "", _json_lines(name, chain(seen, lines), nulls or Nulls.DELETE))
    if first[:1] in b"[{":
        is_text = _is_utf8(b"".join(seen))
        reason = "is no object and no array of objects" if is_text else "is not in UTF-8"
        raise ConfigError(f"{name}: begins as JSON, but {reason}")
    return EventFile(name, "CSV", _csv(name, chain(seen, lines), nulls or Nulls.KEEP))


def _is_utf8(content: bytes) -> bool:
    try:
        content.decode()
    except UnicodeDecodeError:
        return False
    return True


def _first_line(stream: BinaryIO) -> bytes:
    """The first line that is not blank, with the blank ones before it."""
    first = b""
    while line := stream.readline():
        first += line
        if not line.removeprefix(codecs.BOM_UTF8).isspace():
            break
    return first


def _whole(name: str, first: bytes, stream: BinaryIO) -> bytes:
    content = first + stream.read(LARGEST_BYTES)
    if len(content) > LARGEST_BYTES:
        raise ConfigError(
            f"{name}: more than {LARGEST_BYTES >> 30} GiB cannot be converted; publish JSON Lines"
        )
    return content


def _is_object(line: bytes) -> bool:
    try:
        return type(canonical.decode(line)) is dict
    except canonical.MalformedJSON:
        return False


def _json_lines(name: str, lines: Iterable[bytes], nulls: Nulls) -> Iterator[bytes]:
    """The lines as they are, whatever is in them: the flow checks them. Without nulls, objects are written
    again."""
    with _reading(name):
        for line in lines:
            if line.isspace():
                continue
            if nulls is Nulls.KEEP and b"null" in line and _is_object(line):
                yield line_of(canonical.decode(line), nulls)
            else:
                yield line if line.endswith(b"\n") else line + b"\n"


def _objects(content: bytes) -> list[Any] | None:
    """The objects of one array, or that follow each other; None for any other content."""
    try:
        text = content.removeprefix(codecs.BOM_UTF8).decode()
        found: list[Any] = []
        place = _behind_blanks(text, 0)
        while place < len(text):
            # Only the standard library says where a value ends; only our own decoder gives its exact value.
            _, end = _SCANNER.raw_decode(text, place)
            found.append(canonical.decode(text[place:end]))
            place = _behind_blanks(text, end)
    except (*canonical.MalformedJSON, ValueError):
        return None
    events = found[0] if len(found) == 1 and type(found[0]) is list else found
    return events if all(type(each) is dict for each in events) else None


def _behind_blanks(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    return found.end() if found else place


def _parquet(name: str, content: bytes, nulls: Nulls) -> Iterator[bytes]:
    try:
        for row in rows_of_parquet(content):
            yield line_of(row, nulls)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from None


def _csv(name: str, lines: Iterable[bytes], nulls: Nulls) -> Iterator[bytes]:
    """Each value is text as it stands; an empty cell is missing."""
    is_named = name.lower().removesuffix(".gz").endswith((".csv", ".tsv"))
    texts = (line.decode() for line in lines)
    try:
        first = next(texts)
        delimiter = max(_DELIMITERS, key=lambda each: len(next(csv.reader([first], delimiter=each))))
        reader = csv.reader(chain([first], texts), delimiter=delimiter, strict=True)
        header = next(reader)
        if len(header) < 2 and not is_named:
            raise ConfigError(f"{name}: holds no events; publish takes {_TAKEN}, in UTF-8")
        if any(_NO_NAME.fullmatch(each) for each in header) or len(set(header)) < len(header):
            raise ConfigError(
                f"{name}: the first line of CSV names the columns; a name is missing, is there twice, or is a value"
            )
        row: list[str] | None = None
        for row in reader:
            if len(row) not in (0, len(header)):
                raise ConfigError(
                    f"{name}: line {reader.line_num} has {len(row)} cells, and the header {len(header)}"
                )
            if row:
                yield line_of({key: value or None for key, value in zip(header, row, strict=True)}, nulls)
        if row is None and not is_named:
            raise ConfigError(f"{name}: holds no events; publish takes {_TAKEN}, in UTF-8")
    except UnicodeDecodeError:
        raise ConfigError(f"{name}: is not UTF-8; publish takes {_TAKEN}, in UTF-8") from None
    except csv.Error:
        raise ConfigError(
            f"{name}: is no CSV: a quote has no end or stands within a cell, or a cell is too long"
        ) from None
