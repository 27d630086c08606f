"""Files that survive a crash whole, are readable by their owner only, and locks between processes."""

from __future__ import annotations

import fcntl
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, ClassVar

from idgraph.model.errors import AlreadyRunningError

OWNER_ONLY = 0o600


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file so that a crash or a power cut leaves the old or the new content. Raises OSError."""
    with replacing(path) as stream:
        stream.write(content)


def write_unflushed(path: Path, content: bytes) -> None:
    """Replace a file so that a crash leaves the old or the new content; a power cut may leave anything. Raises OSError."""
    part = part_of(path)
    with _opened(part) as stream:
        stream.write(content)
    part.replace(path)


@contextmanager
def replacing(path: Path) -> Iterator[IO[bytes]]:
    """A stream whose content takes the place of a file when the block ends. Raises OSError."""
    part = part_of(path)
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


def part_of(path: Path) -> Path:
    """The place of a file's new content until it is whole."""
    return path.with_name(f".{path.name}.part")


def _opened(part: Path) -> IO[bytes]:
    return os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, OWNER_ONLY), "wb")


@contextmanager
def owner_only() -> Iterator[None]:
    """Files written meanwhile, by child processes too, are for their owner only. It holds for the whole process."""
    kept = os.umask(0o077)
    try:
        yield
    finally:
        os.umask(kept)


@contextmanager
def file_lock(lock: Path, waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
    """While the file `lock` is locked, which is made where it is not there; waits for whoever has it, asked to
    `waiting` first. Its holder must not ask for it again. Raises OSError where there can be no such file."""
    descriptor = os.open(lock, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waiting()
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


@contextmanager
def exclusive_lock(state: Path) -> Iterator[None]:
    """Two runs would share a checkpoint and undo each other's. The lock, a file in the folder `state`, goes with its
    process, however that ends. Raises AlreadyRunningError."""
    lock = state / "lock"

    def refuse() -> None:
        raise AlreadyRunningError(f"running already (its lock is {lock})") from None

    with file_lock(lock, refuse):
        yield


class WriterLock:
    """A lock between processes and threads, a file of this path; the thread that holds it may take it again.

    Objects of one path are one lock in their process.
    """

    _known: ClassVar[dict[str, _Reentrant]] = {}
    _guard = threading.Lock()

    def __init__(self, path: Path) -> None:
        self._path = path
        self._wanted = path.with_name(f"{path.name}.wanted")

    def is_wanted(self) -> bool:
        """Whether somebody has waited for it since it was taken. For whoever holds it for long."""
        return self._wanted.exists()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Hold it until the block ends; waits for whoever holds it. Raises OSError where there can be no such file."""
        with self._guard:
            own = self._known.setdefault(os.path.realpath(self._path), _Reentrant())
        if not own.lock.acquire(blocking=False):
            self._wanted.touch()
            own.lock.acquire()
        try:
            if own.is_held:
                yield
                return
            with file_lock(self._path, self._wanted.touch):
                self._wanted.unlink(missing_ok=True)
                own.is_held = True
                try:
                    yield
                finally:
                    own.is_held = False
        finally:
            own.lock.release()


class _Reentrant:
    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.is_held = False
