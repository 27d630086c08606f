"""The base of everything that has key material in memory."""

from __future__ import annotations

from typing import NoReturn


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
