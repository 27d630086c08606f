"""How a sealed register's value is written: the sealed text and, where policy says `searchable`, the
blind-index token behind a dot. Neither part can hold a dot."""

from __future__ import annotations

from typing import NamedTuple


class SealedValue(NamedTuple):
    """`ciphertext` is base64 text; `token` equals another token of the attribute when the values do."""

    ciphertext: str
    token: str | None = None

    def __str__(self) -> str:
        return self.ciphertext if self.token is None else f"{self.ciphertext}.{self.token}"

    @classmethod
    def parse(cls, text: str) -> SealedValue:
        ciphertext, _, token = text.partition(".")
        return cls(ciphertext, token or None)
