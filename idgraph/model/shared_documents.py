"""Small documents that all processes of one installation see: reports, requests to pause, places in a feed."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Protocol


class HeldLease(Protocol):
    """A lease that is held."""

    def require(self) -> None:
        """Raises AlreadyRunningError when the lease was lost meanwhile, so that another process may hold it."""
        ...


class SharedDocuments(Protocol):
    """Documents by name; a name is a path of at least two parts, as `flows/shop/report.json`. A document is read as it was
    before or after a write, whatever happens. Safe for several threads and processes. Raises StoreError."""

    def read(self, name: str) -> bytes | None:
        """The document; None where there is none."""
        ...

    def write(self, name: str, content: bytes, durable: bool = True) -> None:
        """Put a document in place of the one that is there. One that is not `durable` may be lost with the power."""
        ...

    def add(self, name: str, content: bytes) -> bool:
        """Put a document if there is none; says whether it did. Durable when it returns."""
        ...

    def remove(self, name: str) -> bool:
        """Says whether there was one."""
        ...

    def names(self, pattern: str) -> list[str]:
        """The names of this pattern, sorted. Its first part is plain; in the others `*` is any text without a slash."""
        ...

    def lease(self, name: str) -> AbstractContextManager[HeldLease]:
        """Within the block, no other process holds the lease of this name. It goes with its process, however that ends: at
        once, or in a minute. Raises AlreadyRunningError while another holds it."""
        ...

    def close(self) -> None: ...
