"""One run at a time of what keeps a place on disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from model.errors import AlreadyRunningError
from sinks.file_lock import held


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Two runs would share a checkpoint and undo each other's. The lock, a file in the folder `state`, goes with its
    process, however that ends. Raises AlreadyRunningError."""
    lock = state / "lock"

    def refuse() -> None:
        raise AlreadyRunningError(f"running already (its lock is {lock})") from None

    with held(lock, refuse):
        yield
