"""Key bytes on their way from one holder to another."""

from __future__ import annotations

import secrets
from typing import Self

from transforms.privacy.not_picklable import NotPicklable


class Secret(NotPicklable):
    """Key bytes that no log, comparison, pickle or traceback with local variables shows by accident.

    Whoever needs the bytes says so: `reveal` is called where they go into a cipher, and nowhere else.
    """

    __slots__ = ("_content",)

    def __init__(self, content: bytes) -> None:
        self._content = content

    @classmethod
    def several(cls, count: int, size: int) -> list[Self]:
        """As many, each of `size` bytes of the operating system's generator, of which they are asked at once."""
        content = secrets.token_bytes(count * size)
        return [cls(content[start : start + size]) for start in range(0, count * size, size)]

    def reveal(self) -> bytes:
        """The bytes themselves."""
        return self._content
