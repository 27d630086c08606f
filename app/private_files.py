"""Files that only their owner may read."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ingestion.durable_files import sync_folder
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
    """Write a file of profiles, whole or not at all, readable by its owner only; durable when it returns. What a link
    names is replaced, and the link stays; what is no file, as a pipe or a device, is written into. Raises ConfigError,
    and BrokenPipeError where nobody reads a pipe any more."""
    try:
        if path.exists() and not path.is_file():
            with path.open("wb") as stream:
                stream.writelines(lines)
        else:
            _write_whole(path.resolve(), lines)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror}") from None


def _write_whole(file: Path, lines: Iterable[bytes]) -> None:
    part = _part(file)
    descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.writelines(lines)
            stream.flush()
            os.fsync(descriptor)
        part.replace(file)
        sync_folder(file.parent)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _part(path: Path) -> Path:
    """Where a file is while it is not whole; another process that writes the same has another one."""
    return path.with_name(f".{path.name}.{os.getpid()}.part")
