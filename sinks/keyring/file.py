"""The keyring file on disk: read with its permissions checked, changed under a lock, written atomically."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from idgraph.files import file_lock, part_of, write_atomically
from idgraph.model.errors import KeyProviderError
from sinks.keyring.content import BARE, Envelope, Keyring, parse, render

MAX_BYTES = 1 << 20


class FileStamp(NamedTuple):
    """Changes whenever the file is replaced."""

    inode: int
    modified_ns: int
    size: int


def read(path: Path, envelope: Envelope = BARE) -> tuple[Keyring, FileStamp]:
    """The keyring with the stamp of what was read. Raises KeyProviderError when the file is missing,
    damaged, of a later format, or when others than its owner have any right to it."""
    try:
        with path.open("rb") as stream:
            status = os.fstat(stream.fileno())
            if status.st_mode & 0o077:
                raise KeyProviderError(
                    f"{path}: others than its owner may use this keyring; run: chmod 600 {shlex.quote(str(path))}"
                )
            if status.st_uid not in (os.geteuid(), path.parent.stat().st_uid):
                raise KeyProviderError(
                    f"{path}: this keyring belongs to another user than its folder and this process; "
                    f"if it is the right one: chown {os.geteuid()} {shlex.quote(str(path))}"
                )
            # Never in a variable: a traceback that shows local variables would show the keys.
            keyring = parse(stream.read(MAX_BYTES + 1), envelope)
    except FileNotFoundError:
        raise KeyProviderError(f"there is no keyring at {path}") from None
    except OSError as error:
        raise KeyProviderError(f"{path}: the keyring cannot be read: {error.strerror}") from None
    if isinstance(keyring, str):
        # Raised here and not where it was found: a decoder's error could keep key bytes as its context.
        raise KeyProviderError(f"{path}: the keyring cannot be used: {keyring}")
    return keyring, _stamp(status)


def stamp(path: Path) -> FileStamp:
    """The stamp of the file as it is now. Raises KeyProviderError when it is gone."""
    try:
        return _stamp(path.stat())
    except OSError as error:
        raise KeyProviderError(f"{path}: the keyring cannot be read: {error.strerror}") from None


def create(path: Path, envelope: Envelope = BARE, make: Callable[[Envelope], Keyring] = Keyring.new) -> None:
    """Make a keyring file of what `make` gives. Raises KeyProviderError if there is any file of this name."""
    with _changing(path):
        if os.path.lexists(path):
            raise KeyProviderError(f"{path} exists; a keyring is never replaced")
        _write(path, render(make(envelope), envelope))


def change(
    path: Path, edit: Callable[[Keyring], Keyring], envelope: Envelope = BARE
) -> tuple[Keyring, FileStamp]:
    """Change the keyring while nobody else does; gives the new content.

    An `edit` that gives the keyring it was given writes nothing; one that raises leaves it as it is. The content is
    on disk when this returns. Raises KeyProviderError.
    """
    with _changing(path):
        keyring, stamp = read(path, envelope)
        edited = edit(keyring)
        if edited is keyring:
            return keyring, stamp
        _write(path, render(edited, envelope))
        return read(path, envelope)


@contextmanager
def _changing(path: Path) -> Iterator[None]:
    """Each change of the keyring holds the lock of a file beside it, so that no change is lost."""
    try:
        with file_lock(path.with_name(f".{path.name}.lock")):
            # The rest of a change that was killed: it holds keys.
            part_of(path).unlink(missing_ok=True)
            yield
    except OSError as error:
        raise KeyProviderError(f"{path}: the keyring cannot be written: {error.strerror}") from None


def _write(path: Path, content: bytes) -> None:
    try:
        write_atomically(path, content)
    except BaseException:
        part_of(path).unlink(missing_ok=True)
        raise


def _stamp(status: os.stat_result) -> FileStamp:
    return FileStamp(status.st_ino, status.st_mtime_ns, status.st_size)
