"""Events as they were read and as they were decoded."""

from __future__ import annotations

from typing import Any, NamedTuple


class RawRecord(NamedTuple):
    """One record as a source gave it.

    `position` says where: `file:NAME#LINE` (line from 1) or `kafka:TOPIC/PARTITION/OFFSET`.
    `source` names the configured source that read it.
    """

    source: str
    position: str
    value: bytes


class Event(NamedTuple):
    """What a source published, its envelope understood.

    `id` and `ordinal` are None where the envelope has none; the mapping spec may then name their place in
    the mapped output.
    """

    source: str
    type: str
    id: str | None
    ordinal: int | None
    position: str
    payload: Any
    raw: bytes

    def context(self) -> dict[str, Any]:
        """What a mapping spec may look up with `^`: the envelope without the payload."""
        return {
            "source": self.source,
            "type": self.type,
            "id": self.id,
            "ordinal": self.ordinal,
            "position": self.position,
        }
