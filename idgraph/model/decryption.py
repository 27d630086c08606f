"""Decryption of encrypted records by an external service."""

from __future__ import annotations

from concurrent.futures import Future
from typing import NamedTuple, Protocol


class Decrypted(NamedTuple):
    """The plaintext, or None with the reason; the reason contains nothing of the record or an answer. `is_final`: the
    service refuses this record for good; otherwise the service failed."""

    content: bytes | None
    failure: str = ""
    retries: int = 0
    is_final: bool = False


class Decryptor(Protocol):
    """Decrypts the records of one source. Safe for several threads."""

    def submit(self, content: bytes, position: str) -> Future[Decrypted]:
        """Start to decrypt a record, without waiting. The future raises nothing: a failure is a result."""
        ...

    def close(self) -> None: ...
