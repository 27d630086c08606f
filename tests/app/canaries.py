"""Unique plaintexts, looked for in the bytes of files in the encodings that were thought of."""

from __future__ import annotations

import base64
import gzip
from collections.abc import Iterable, Iterator
from pathlib import Path


def shapes(text: str) -> Iterator[bytes]:
    """How a text may stand in a file."""
    for spelling in {text, text.lower(), text.upper()}:
        encoded = spelling.encode()
        yield from (
            encoded,
            encoded.hex().encode(),
            spelling.encode("utf-16-le"),
            spelling.encode("utf-16-be"),
        )
        for lead in range(3):
            whole = base64.b64encode(b"x" * lead + encoded + b"x" * 3)
            yield whole[4 : len(whole) - 8]


def places(folder: Path, canaries: Iterable[str]) -> list[tuple[str, bytes]]:
    """Where canaries stand in a folder's files, and in which shape."""
    wanted = [shape for canary in canaries for shape in shapes(canary)]
    found = []
    for path in folder.rglob("*"):
        if not path.is_file():
            continue
        content = path.read_bytes()
        if content[:2] == b"\x1f\x8b":
            content += gzip.decompress(content)
        found += [(path.name, shape) for shape in wanted if shape in content]
    return found
