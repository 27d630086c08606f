"""What an erasure leaves behind, and what it finds.

A tombstone stands under a keyed hash of the fragment's id (`TombstoneNames`), never under the id. It says
which events may not bring the fragment back, and with which version a new fragment of this id goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from idgraph.model.stamps import ORDINAL_MIN

NO_EPOCH = ORDINAL_MIN
"""What an event was judged by when its fragment had no tombstone; also `until` of one that was lifted."""

TombstoneNames = Callable[[str], bytes]
"""A fragment's id to the keyed hash its tombstone stands under."""


class Tombstone(NamedTuple):
    """`until`, epoch milliseconds: an event counts only if its source orders by time and its ordinal is
    later. `version` is higher than any that the erased fragment had; a new one starts behind it."""

    until: int
    version: int

    @classmethod
    def behind(cls, version: int, until: int = NO_EPOCH) -> Tombstone:
        """That of a fragment whose last version this was, 0 where there was none. A writer that read it before expects
        that version, and is refused also when nothing is forbidden any more; what is new goes on from a higher one."""
        return cls(until, version + 1 if version else version)

    def covers(self, version: int) -> bool:
        """Whether a fragment of this version is one that was erased, which a restored backup brought back."""
        return self.until > NO_EPOCH and version <= self.version

    def joined(self, other: Tombstone) -> Tombstone:
        """What both forbid."""
        return Tombstone(max(self.until, other.until), max(self.version, other.version))


class FragmentSummary(NamedTuple):
    """What the store has, or had, of one fragment. `version` is 0 where there was none."""

    fragment_id: str
    version: int
    identifiers: frozenset[str]
    in_outbox: bool
