"""Identifiers and the names of fragments."""

from __future__ import annotations

from typing import NamedTuple

HASHED_PREFIX = "~"
"""A value that starts so is a keyed hash: the identifier's type is protected by policy."""

MOST_BYTES = 2048
"""Of the text form of a primary identifier: what the key of an item in DynamoDB may have, and so in every store, since
the profiles must not depend on which it is."""


class Identifier(NamedTuple):
    """Names a person in some system: `realm_id:1000040055`.

    Its text form, type and value joined by the first colon, is also the id of the fragment whose primary
    identifier it is. `value` is a keyed hash (`~...`) where policy protects the identifier.
    """

    type: str
    value: str

    def __str__(self) -> str:
        return f"{self.type}:{self.value}"

    @classmethod
    def parse(cls, text: str) -> Identifier:
        """Read `type:value`; the value may hold colons. Raises ValueError without a colon."""
        kind, colon, value = text.partition(":")
        if not (kind and colon and value):
            raise ValueError("an identifier is written type:value, for instance user_id:480")
        return cls(kind, value)
