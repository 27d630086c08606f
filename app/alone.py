"""One run at a time of what keeps a place on disk."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from model.errors import AlreadyRunningError


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Two runs would share a checkpoint and undo each other's. The lock, a file in the folder `state`, goes with its
    process, however that ends. Raises AlreadyRunningError."""
    descriptor = os.open(state / "lock", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunningError(f"running already (its lock is {state / 'lock'})") from None
        yield
    finally:
        os.close(descriptor)
