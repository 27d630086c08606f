"""Timelines: the entries that events leave where an activity names them, in pages by fragment, activity and day."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

DAY_MS = 86_400_000


class Entry(NamedTuple):
    """One event in a timeline, ordered by `time` (epoch milliseconds), source and event id.

    `made_by` is the version of the activity, then name and version of the spec that mapped the event: of two entries of one
    event the greater one holds. `fields` are JSON values by the names that the activity gives them.
    """

    time: int
    source: str
    event_id: str
    made_by: tuple[int, str, int]
    fields: Mapping[str, Any]

    @property
    def order(self) -> tuple[int, str, str]:
        """The key by which entries of an activity are sorted; no two entries of a timeline share it."""
        return self[:3]


class PageKey(NamedTuple):
    """One page of a fragment's timelines. `day` counts days in UTC since the epoch."""

    activity: str
    day: int


class DueEntry(NamedTuple):
    """The profile of the fragment that names it changes at `at_ms` (epoch milliseconds) without any event."""

    fragment_id: str
    at_ms: int
