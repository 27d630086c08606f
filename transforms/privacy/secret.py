"""Key bytes on their way from one holder to another."""

from __future__ import annotations

import secrets
from typing import NoReturn, Self


class NotPicklable:
    """Shows nothing of itself and stays in its process.

    `repr` and `str` give the class name alone; equality and hash are by identity, so that no comparison
    touches key bytes. Pickling and copying raise TypeError: a worker opens its own provider (law 3).
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} holds keys and is neither pickled nor copied: "
            "each process opens its own key provider"
        )


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
