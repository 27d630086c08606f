"""The total order that decides between two values."""

from __future__ import annotations

from typing import NamedTuple

ORDINAL_MIN = -(2**63)
ORDINAL_MAX = 2**63 - 1


class Stamp(NamedTuple):
    """Compares field by field; the later stamp wins under the policy `latest`.

    `ordinal` is an int64 that orders a source's events: epoch milliseconds or the source's own sequence.
    """

    priority: int
    ordinal: int
    source: str
    event_id: str


class SpecRef(NamedTuple):
    """Which version of which mapping spec made a value."""

    name: str
    version: int

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"
