"""Key bytes on their way from one holder to another."""

from __future__ import annotations

import secrets
from typing import Self

from transforms.key_holder import KeyHolder


class Secret(KeyHolder):
    """Key bytes that no log, comparison, pickle or traceback with local variables shows by accident.

    Whoever needs the bytes says so: `reveal` is called where they go into a cipher, and nowhere else.
    """

    __slots__ = ("_content",)

    def __init__(self, content: bytes) -> None:
        self._content = content

    @classmethod
    def random(cls, size: int) -> Self:
        """`size` bytes of the operating system's generator."""
        return cls(secrets.token_bytes(size))

    def reveal(self) -> bytes:
        """The bytes themselves."""
        return self._content
