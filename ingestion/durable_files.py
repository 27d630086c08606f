"""Files of a flow that must still be there, whole, after a crash, and most of them after a power cut. Readable by their
owner only."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

OWNER_ONLY = 0o600


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file so that a crash or a power cut leaves the old or the new content. Raises OSError."""
    with replacing(path) as stream:
        stream.write(content)


def write_unflushed(path: Path, content: bytes) -> None:
    """Replace a file so that a crash leaves the old or the new content; a power cut may leave anything. Raises OSError."""
    part = _part(path)
    with _opened(part) as stream:
        stream.write(content)
    part.replace(path)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose content takes the place of a file when the block ends. Raises OSError."""
    part = _part(path)
    with _opened(part) as stream:
        yield stream
        stream.flush()
        os.fsync(stream.fileno())
    part.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Bring names that were made or changed in a folder to disk: they are in the folder, not in the files."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _opened(part: Path) -> IO[bytes]:
    return os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, OWNER_ONLY), "wb")
