"""The ledger: which fragment went from which profile to which, which profile entered, left and changed in which segment, and
when. It only grows, but for changes.

Fragments have the names of tombstones in it, keyed hashes of their ids: after an erasure nothing readable is left there.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, NamedTuple, Protocol

CHANGES = "*"
"""Behind the name of a segment: its members have changed."""

VALUES = "value:"
"""Before the name of what follows the value of an attribute: each crossing is a change of the value. Its change has as number
that of the next crossing, then 31 bits of a keyed hash of the value, 0 after the profile was gone."""

Cause = Literal["", "merged", "split", "defined"]


class LedgerEntry(NamedTuple):
    """One recorded change of a fragment's profile. `fragment`, `previous` and `profile` are keyed hashes, the latter two of
    the fragments that name the profiles. `epoch` is the fragment's after the change; `at_ms` is in epoch milliseconds, by
    the clock of the projection. `cursor` is the entry's place in the ledger, empty before it is stored."""

    at_ms: int
    fragment: bytes
    epoch: int
    previous: bytes
    profile: bytes
    cursor: str = ""


class Crossing(NamedTuple):
    """A profile enters or leaves a segment: its first crossing enters, its second leaves. Or it has changed in the segment,
    which ends with `CHANGES` then: `number` is the version of its document. `profile` is the id of the fragment that names
    the profile, or where it was read from the ledger, the keyed hash of that. `cause` says that it is the effect of a merge, a
    split or a new definition of the segment, not of events or the time."""

    at_ms: int
    profile: str | bytes
    segment: str
    number: int
    cursor: str = ""
    cause: Cause = ""

    @property
    def kind(self) -> Literal["entered", "left", "changed"]:
        return "changed" if self.is_change else "entered" if self.number % 2 else "left"

    @property
    def profile_hash(self) -> str:
        """The keyed hash of a profile that was read from the ledger, in hexadecimal."""
        return self.profile.hex() if isinstance(self.profile, bytes) else self.profile

    @property
    def is_change(self) -> bool:
        return self.segment.endswith(CHANGES)


class Delivery(NamedTuple):
    """An entry as a receiver gets it: JSON, `id` the same whenever it comes again, `profile` the id of the profile as shown."""

    id: str
    profile: str
    document: Mapping[str, Any]


class Ledger(Protocol):
    """Entries that `FragmentStore.assign` leaves, each in the same transaction as its assignment: one that is refused leaves
    none; and crossings. Every method blocks, and raises `StoreError` as those of `FragmentStore`."""

    def ledger(
        self, after: str = "", limit: int = 1000, segment: str | None = None, has_changes: bool = True
    ) -> list[LedgerEntry | Crossing]:
        """Up to `limit` entries behind a cursor, in the order of the cursors; only the crossings of `segment` and changes in
        it, if one is named; without `has_changes` no changes. No entry comes later before one that was returned: where the
        store cannot promise it of the last minute, it holds entries back. Raises QueryError for a foreign cursor."""
        ...

    def ledger_end(self, after: str) -> str:
        """A cursor behind all entries that `ledger` returns by now, and before any later one; not before `after`."""
        ...

    def ledger_of(self, fragment_ids: Sequence[str]) -> list[LedgerEntry]:
        """All entries of these fragments, the newest too, in the order of the cursors. No crossings."""
        ...

    def cross(self, crossings: Sequence[Crossing]) -> None:
        """Append crossings of profiles. One whose number the profile and segment have already has no effect. A change may take
        the place of earlier ones of the profile in the segment, and is left out where nobody can have read the last one yet."""
        ...

    def crossed(self, fragment_ids: Sequence[str]) -> dict[str, dict[str, int]]:
        """By id and segment, the number of the last crossing. Reads all earlier writes."""
        ...

    def fragments_named(self, names: Collection[bytes]) -> dict[bytes, str]:
        """The ids of the fragments with these names that exist. Those that were never assigned can be absent."""
        ...
