"""The log of households: what persons did who link themselves to share attributes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple, Protocol


class HouseholdEntry(NamedTuple):
    """An act of a person. `member` is random, and stands for one membership. `person` is the id of a fragment as it
    is stored, and `key` its keyed hash. `kind` is `joined`, `invited`, `closed` (an invitation), `declined`, `shared`
    or `left`; `body` is JSON data."""

    household: str
    member: str
    person: str
    key: str
    at_ms: int
    kind: str
    body: Mapping[str, Any] = {}


Decide = Callable[[Sequence[HouseholdEntry]], Sequence[HouseholdEntry]]
"""From the entries of a household to those that are appended."""


class HouseholdLog(Protocol):
    """Safe for several processes. Raises StoreError."""

    def append(self, household: str, decide: Decide) -> None:
        """Append what `decide` makes of the household's entries; nobody else appends meanwhile. `decide` may be called
        again."""
        ...

    def read(self, household: str) -> list[HouseholdEntry]:
        """All entries, the oldest first."""
        ...

    def of(self, keys: Collection[str]) -> list[str]:
        """The households with an entry of one of these persons, sorted."""
        ...

    def erase(self, keys: Collection[str]) -> int:
        """Remove the entries of these persons, and leave nothing of them in a file; returns their number."""
        ...

    def close(self) -> None: ...
