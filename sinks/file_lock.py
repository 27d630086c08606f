"""One at a time, over processes: a lock that goes with its holder, however that ends."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def held(lock: Path, waiting: Callable[[], object] = lambda: None) -> Iterator[None]:
    """While the file `lock` is locked, which is made where it is not there; waits for whoever has it, told to `waiting` first.
    Whoever holds it must not ask for it again. Raises OSError where there can be no such file."""
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
