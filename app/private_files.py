"""Files that only their owner may read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from model.errors import ConfigError


@contextmanager
def owner_only() -> Iterator[None]:
    """Whatever is written meanwhile, by child processes too, is for its owner only. Of the whole process."""
    kept = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(kept)


def write_private(path: Path, content: str) -> None:
    """Write a small secret file, readable by its owner only; refuses to replace one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as stream:
        stream.write(content)


def require_place(path: Path) -> None:
    """Raises ConfigError where no new file can be written."""
    if path.exists():
        raise ConfigError(f"{path}: is there already, and is not replaced")
    part = _part(path)
    try:
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT, 0o600))
        part.unlink()
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def write_export(path: Path, lines: Iterable[bytes]) -> None:
    """Write a file of profiles, whole or not at all, readable by its owner only."""
    part = _part(path)
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb") as stream:
                stream.writelines(lines)
            part.replace(path)
        except BaseException:
            part.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _part(path: Path) -> Path:
    """Where a file is while it is not whole."""
    return path.with_name(f".{path.name}.part")
