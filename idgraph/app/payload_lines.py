"""Payloads as JSON Lines, from a file or standard input, plain or gzip'd."""

from __future__ import annotations

import codecs
import gzip
import re
import sys
import zlib
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from idgraph.model import canonical
from idgraph.model.errors import ConfigError, IdgraphError
from idgraph.model.events import kind

MAX_LINE = 64 << 20
"""Bytes. A longer line is a mistake and is not held in memory; a flow takes far less (`max_event_bytes`)."""
_GZIP = b"\x1f\x8b"
_HALF_PAIR = re.compile(
    rb"(?<!\\)(?:\\\\)*\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])|[c-fC-F][0-9a-fA-F]{2}(?<!\\u[dD][89abAB]..\\u....))"
)


class PayloadLine(NamedTuple):
    """One line that is not blank: its number from 1, and its value, or the reason why it has none."""

    number: int
    value: Any
    mistake: str | None


def read_payloads(file: Path | None, only_objects: bool = False) -> Iterator[PayloadLine]:
    """The lines of a file, or of standard input. With `only_objects` anything else is a mistake, as in a flow.

    Raises ConfigError for a file that cannot be opened or read and IdgraphError for a damaged gzip stream.
    """
    name = str(file) if file else "standard input"
    try:
        raw = file.open("rb") if file else sys.stdin.buffer
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror}") from None
    try:
        with raw, unpacked(raw) as lines:
            for number, line in enumerate(_bounded(lines), 1):
                if line is None:
                    yield PayloadLine(number, None, f"longer than {MAX_LINE >> 20} MiB")
                    continue
                content = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
                if content and not content.isspace():
                    read = _read(number, content)
                    if only_objects and read.mistake is None and type(read.value) is not dict:
                        read = PayloadLine(number, None, f"expected an object, found {kind(read.value)}")
                    yield read
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise IdgraphError(f"{name}: damaged gzip data: {error}") from None
    except OSError as error:
        raise ConfigError(f"{name}: {error.strerror or type(error).__name__}") from None


def _bounded(stream: BinaryIO) -> Iterator[bytes | None]:
    """Lines with their ends; None for one that is longer than the bound."""
    while line := stream.readline(MAX_LINE + 1):
        if len(line) <= MAX_LINE or line.endswith(b"\n"):
            yield line
            continue
        while (rest := stream.readline(MAX_LINE)) and not rest.endswith(b"\n"):
            pass
        yield None


def unpacked(raw: BinaryIO) -> BinaryIO:
    """A stream as it is, or its unpacked content if it begins as gzip does, whatever its name."""
    buffered = raw if isinstance(raw, BufferedReader) else BufferedReader(cast(Any, raw))
    if buffered.peek(2)[:2] == _GZIP:
        return cast(BinaryIO, gzip.GzipFile(fileobj=buffered))
    return cast(BinaryIO, buffered)


def _read(number: int, line: bytes) -> PayloadLine:
    try:
        return PayloadLine(number, canonical.decode(line), None)
    except canonical.MalformedJSON as error:
        broken = _HALF_PAIR.search(line) is not None
        message = "a text holds half of a \\u pair" if broken else str(error)
        return PayloadLine(number, None, f"not JSON: {message}")
