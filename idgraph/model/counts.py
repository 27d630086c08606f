"""The counters of a micro-batch: one record that every stage fills in part, added up on the way to the driver."""

from __future__ import annotations

import msgspec


class BatchCounts(msgspec.Struct, array_like=True, kw_only=True):
    """Counters of one step, of one task, or of a whole micro-batch. Seconds are those of all tasks together."""

    files: int = 0
    file_bytes: int = 0
    """Bytes of the files on disk; `bytes` are those of the records."""
    events: int = 0
    bytes: int = 0
    skipped: int = 0
    """Events that mapped to nothing."""
    protected: int = 0
    """Values that were sealed."""
    decrypted: int = 0
    undecrypted: int = 0
    decrypt_retries: int = 0
    written: int = 0
    unchanged: int = 0
    conflicts: int = 0
    """Fragments that another writer changed first, at each attempt."""
    retries: int = 0
    """Writes that were repeated after a conflict or an outage of the store."""
    isolated: int = 0
    """Fragments that could not be committed."""
    erased: int = 0
    """Events, and changes of fragments, that a tombstone refused."""
    dropped_changes: int = 0
    """Schema changes that were too many to be reported."""
    decrypt_seconds: float = 0.0
    """Seconds for which the stages waited for the decryption service: a part of `map_seconds`."""
    map_seconds: float = 0.0
    commit_seconds: float = 0.0
    read_units: float = 0.0
    """Capacity units that a store charged for, as DynamoDB does; 0 where it charges nothing."""
    write_units: float = 0.0

    def count(self, other: BatchCounts) -> None:
        """Add the counters of `other`, which may have more than counters."""
        for name in COUNTERS:
            if number := getattr(other, name):
                setattr(self, name, getattr(self, name) + number)


COUNTERS = BatchCounts.__struct_fields__
