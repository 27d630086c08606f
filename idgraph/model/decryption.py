"""Decrypting records that arrive encrypted, by a service of somebody else's."""

from __future__ import annotations

from concurrent.futures import Future
from typing import NamedTuple, Protocol


class Decrypted(NamedTuple):
    """What was decrypted; or None, and why nothing was, in words that hold nothing of the record or of an answer.
    `retries` is how often it was asked again; `is_final` is true where this record is refused, whenever it is asked for,
    and false where the service is away or does not serve us at all."""

    content: bytes | None
    failure: str = ""
    retries: int = 0
    is_final: bool = False


class Decryptor(Protocol):
    """What decrypts the records of one source. Safe for several threads."""

    def submit(self, content: bytes, position: str) -> Future[Decrypted]:
        """Begin to decrypt a record, and do not wait. The future raises nothing: a failure is an answer too."""
        ...

    def close(self) -> None: ...
