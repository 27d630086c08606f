"""Identifiers and the names of fragments."""

from __future__ import annotations

from typing import NamedTuple

from idgraph.model.errors import QueryError

HASHED_PREFIX = "~"
"""Prefix of a value that is a keyed hash, because policy protects the identifier."""

MOST_BYTES = 2048
"""Limit of a primary identifier's text form: that of an item key in DynamoDB. It holds for every store, because profiles
must not depend on the store."""


class Identifier(NamedTuple):
    """Names a person in some system: `realm_id:1000040055`.

    Its text form, `type:value`, is also the id of the fragment with this primary identifier. `value` is a keyed hash
    (`~...`) if policy protects the identifier.
    """

    type: str
    value: str

    def __str__(self) -> str:
        return f"{self.type}:{self.value}"

    @classmethod
    def parse(cls, text: str) -> Identifier:
        """Read `type:value`; the value can contain colons. Raises ValueError without a colon."""
        kind, colon, value = text.partition(":")
        if not (kind and colon and value):
            raise ValueError("an identifier is written type:value, for instance user_id:480")
        # As a NamedTuple's constructor does, without its call: there are several for each fragment.
        return tuple.__new__(cls, (kind, value))


def given_identifier(text: str, place: str = "") -> Identifier:
    """An identifier that somebody wrote, at a place of their request. Raises QueryError."""
    try:
        return Identifier.parse(text)
    except ValueError as error:
        raise QueryError(f"{place}: {error}" if place else str(error)) from None
