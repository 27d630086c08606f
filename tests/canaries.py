"""Looks for plaintexts in whatever a system may write: every spelling, through gzip and Parquet."""

from __future__ import annotations

import base64
import gzip
import json
import zlib
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from io import BytesIO
from pathlib import Path

import pyarrow.parquet as pq

_LARGE = 32 << 20


@lru_cache
def shapes(text: str) -> tuple[bytes, ...]:
    """How a plaintext may stand in a file."""
    found: dict[bytes, None] = {}
    for spelling in (text, text.lower(), text.upper()):
        raw = spelling.encode()
        for shape in (
            raw,
            raw.hex().encode(),
            raw.hex().upper().encode(),
            spelling.encode("utf-16-le"),
            spelling.encode("utf-16-be"),
            json.dumps(spelling).strip('"').encode(),
            repr(raw)[2:-1].encode(),
            *_base64(raw),
        ):
            found[shape] = None
    return tuple(found)


def _base64(raw: bytes) -> Iterator[bytes]:
    # There are three alignments; the middle of each is the same whatever stands around it.
    for lead in range(3):
        encoded = base64.b64encode(b"x" * lead + raw + b"x" * 3)
        middle = encoded[4 : len(encoded) - 8]
        yield middle
        yield middle.translate(bytes.maketrans(b"+/", b"-_"))


def seen(content: bytes, canaries: Iterable[str]) -> list[str]:
    """The canaries of which some shape stands in some bytes, or in what they hold compressed."""
    layers = [content, *_within(content)]
    return [canary for canary in canaries if any(_holds(layer, canary) for layer in layers)]


def _holds(layer: bytes, canary: str) -> bool:
    # Of very large files only what costs little: all spellings of hundreds of megabytes take minutes.
    wanted = shapes(canary) if len(layer) < _LARGE else (canary.encode(), canary.encode("utf-16-le"))
    return any(shape in layer for shape in wanted)


def _within(content: bytes) -> Iterator[bytes]:
    start = content.find(b"\x1f\x8b\x08")
    while start >= 0:
        # What a member holds up to its damage, if it has any.
        with suppress(zlib.error):
            yield zlib.decompressobj(wbits=31).decompress(content[start:])
        start = content.find(b"\x1f\x8b\x08", start + 3)
    if content[:4] == b"PAR1":
        yield str(pq.read_table(BytesIO(content)).to_pylist()).encode()


def files_below(*folders: Path, without: frozenset[str] = frozenset()) -> Iterator[Path]:
    """All files below some folders, but for those with one of these names on their way."""
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if path.is_file() and without.isdisjoint(path.relative_to(folder).parts):
                yield path


def content_of(path: Path) -> bytes:
    """What a file holds; nothing when it went away meanwhile, as temporary ones do when a process ends."""
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


def places(folder: Path, canaries: Iterable[str]) -> list[tuple[str, str]]:
    """Where canaries stand in a folder's files: the file's name, and which."""
    wanted = tuple(canaries)
    files = files_below(folder)
    return [(path.name, canary) for path in files for canary in seen(content_of(path), wanted)]


def leaks(canaries: Iterable[str], files: Iterable[Path], *outputs: bytes) -> list[tuple[str, list[str]]]:
    """Where canaries stand: in files, in their names, in outputs."""
    places = [
        *((str(path), f"{path}\n".encode() + content_of(path)) for path in files),
        *((f"output {number}", output) for number, output in enumerate(outputs)),
    ]
    wanted = tuple(canaries)
    return [(place, found) for place, content in places if (found := seen(content, wanted))]


def examples_of_leaks(canary: str) -> Iterator[bytes]:
    """What `seen` must see; for a test of it."""
    raw = canary.encode()
    yield raw
    yield canary.encode("utf-16-le")
    yield b"  " + raw.hex().encode()
    yield json.dumps({"a": canary}).encode()
    for key in ("a", "ab", "abc"):
        yield base64.b64encode(json.dumps({key: canary}, ensure_ascii=False).encode())
        yield base64.urlsafe_b64encode(json.dumps({key: canary}, ensure_ascii=False).encode())
    yield b"before" + gzip.compress(raw) + gzip.compress(b"other")
    yield gzip.compress(b"x" * 100 + raw + b"y" * 100_000)[:-20]
