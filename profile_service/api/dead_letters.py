"""Dead letters as routes see them: the selection, and the part of a record that its reader may see."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol

from pydantic import AwareDatetime, Field

from idgraph.model.dead_letters import DeadLetter, DeadLetterReason
from idgraph.model.documents import StrictDocument
from idgraph.model.identifiers import Identifier
from idgraph.model.snapshots import MetadataSnapshot
from idgraph.model.sources import EventSources

MOST_SCANNED = 10_000
"""Dead letters that one answer looks at."""


class ShownRecord(NamedTuple):
    """The record of a dead letter as its reader may see it. `payload` is None where nothing can be shown, and `problem` says
    why. `becomes` has the attributes of shown values by JSON pointer, `cause` the pointers of what is wrong."""

    payload: Any
    problem: str | None
    becomes: dict[str, list[str]]
    cause: list[str]


class ShownEvent(NamedTuple):
    """An event as its reader may see it: its type, the spec in force that maps it, and the fields of a
    `ShownRecord`. If it was set aside, `dead_letter` is the id of its dead letter, and `reason` says why. Its
    `identifiers` are shown to nobody: they lead to the profile that it is part of."""

    type: str | None
    spec: str | None
    payload: Any
    problem: str | None
    becomes: dict[str, list[str]]
    dead_letter: str | None
    reason: str | None
    identifiers: list[Identifier]


class NewestDeadLetters(Protocol):
    """A part of the store `DeadLetters`."""

    def newest(self, most: int, before: tuple[int, str] | None = None) -> list[DeadLetter]: ...


class DeadLetterDesk(NewestDeadLetters, Protocol):
    """The dead letters of the flows on this machine. Safe for several threads; raises StoreError."""

    @property
    def event_sources(self) -> EventSources: ...
    def get(self, dead_letter_id: str) -> DeadLetter | None: ...
    def drop(self, ids: Sequence[str]) -> int: ...
    def record(
        self, dead_letter: DeadLetter, snapshot: MetadataSnapshot, etag: str, sees: Callable[[str], bool]
    ) -> ShownRecord: ...
    def newest_events(
        self, source: str, most: int, snapshot: MetadataSnapshot, etag: str, sees: Callable[[str], bool]
    ) -> list[ShownEvent] | None: ...


class DeadLetterFilter(StrictDocument):
    """A selection of dead letters; a field that is left out selects all."""

    reason: DeadLetterReason | None = None
    source: str | None = Field(default=None, max_length=200)
    stage: str | None = Field(default=None, max_length=100)
    file: str | None = Field(
        default=None,
        min_length=1,
        max_length=1000,
        description="Name of a source's file, or the end of its path.",
    )
    spec: str | None = Field(default=None, max_length=300, description="`name@version`, or the name alone.")
    since: AwareDatetime | None = Field(default=None, description="Set aside at this time or later.")
    until: AwareDatetime | None = Field(default=None, description="Set aside before this time.")

    def takes(self, each: DeadLetter) -> bool:
        """Whether the filter selects a dead letter."""
        own = each.spec or ""
        return (
            self.reason in (None, each.reason)
            and self.source in (None, each.source)
            and self.stage in (None, each.stage)
            and (self.file is None or each.is_of_file(self.file))
            and self.spec in (None, own, own.partition("@")[0])
            and (self.since is None or each.set_aside_at >= self.since.timestamp() * 1000)
            and (self.until is None or each.set_aside_at < self.until.timestamp() * 1000)
        )

    def all_of(self, desk: NewestDeadLetters) -> Iterator[DeadLetter]:
        """All selected dead letters, the newest first, without their payloads."""
        before: tuple[int, str] | None = None
        while found := desk.newest(MOST_SCANNED, before):
            yield from filter(self.takes, found)
            before = found[-1].set_aside_at, found[-1].id
