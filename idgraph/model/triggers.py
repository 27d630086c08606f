"""Triggers: messages that are delivered when persons enter or leave segments, or meet a search, within limits."""

from __future__ import annotations

import zlib
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import ConfigDict, Field, model_validator

from idgraph.model import canonical, queries
from idgraph.model.behaviour import CalendarPeriod
from idgraph.model.documents import NAME_PATTERN, TOPIC_PATTERN, Definition, FrozenDocument
from idgraph.model.durations import Duration, TimeZone
from idgraph.model.index import Segment
from idgraph.model.ledger import VALUES

WEBHOOK_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9_\-]{0,63}$"
Clock = Annotated[str, Field(pattern=r"^([01][0-9]|2[0-3]):[0-5][0-9]$")]

Outcome = Literal["fired", "held", "waiting", "suppressed", "failed"]
"""Outcomes of a crossing: its message was taken; waits for the end of quiet hours; waits for the receiver; is not sent; was not taken in
time."""


def topic_receiver(topic: str) -> str:
    """The name under which messages for a topic wait. No webhook has it."""
    return f"topic.{topic.replace('/', '.')}"


Change = Literal["entered", "left", "becomes_true", "becomes_false", "changes"]


class When(FrozenDocument):
    """Persons enter or leave a segment, begin or cease to meet a search of the trigger's own, or have another value of an
    attribute."""

    segment: str | None = Field(default=None, min_length=1, max_length=200)
    q: str | None = Field(default=None, min_length=1, max_length=10_000)
    attribute: str | None = Field(
        default=None,
        min_length=1,
        max_length=500,
        description="Path of an attribute, also of a derived one.",
        exclude_if=lambda path: path is None,
    )
    on: Change | None = Field(
        default=None,
        description="`entered` or `left` a segment; a search `becomes_true` or `becomes_false`; an attribute `changes`.",
    )
    time_zone: TimeZone = Field(default="UTC", description="Of moments in `q` that name none.")

    @model_validator(mode="after")
    def _one_condition(self) -> Self:
        if [self.segment, self.q, self.attribute].count(None) != 2:
            raise ValueError("give one of `segment`, `q` and `attribute`")
        if self.on not in (None, *self._known()):
            raise ValueError(f"`on` is {' or '.join(self._known())}")
        return self

    def _known(self) -> tuple[Change, ...]:
        if self.attribute is not None:
            return ("changes",)
        return ("entered", "left") if self.q is None else ("becomes_true", "becomes_false")

    @property
    def change(self) -> Change:
        """`on`, with its default."""
        return self.on or self._known()[0]


class MessageLimit(FrozenDocument):
    """The most messages for one person: in each time of the length `per`, or in a calendar period."""

    most: int = Field(ge=1, le=1000)
    per: Duration | None = None
    calendar: Literal["day", "week", "month", "quarter", "year"] | None = None
    time_zone: TimeZone = "UTC"

    @model_validator(mode="after")
    def _one_time(self) -> Self:
        if (self.per is None) == (self.calendar is None):
            raise ValueError("give one of `per` and `calendar`")
        return self

    def period(self) -> CalendarPeriod | None:
        """The calendar period, if it has one."""
        if self.calendar is None:
            return None
        return CalendarPeriod(calendar=self.calendar, time_zone=self.time_zone)


class Group(FrozenDocument):
    """Triggers of the same group have limits in common: the messages of all count, and the limits that any of them states."""

    name: str = Field(pattern=NAME_PATTERN)
    limits: tuple[MessageLimit, ...] = Field(default=(), max_length=10)


class QuietHours(FrozenDocument):
    """A time of each day, over midnight if `to` is before `from`. Messages wait for its end."""

    model_config = ConfigDict(extra="forbid", frozen=True, serialize_by_alias=True)

    from_: Clock = Field(alias="from")
    to: Clock
    time_zone: TimeZone = "UTC"

    @model_validator(mode="after")
    def _has_length(self) -> Self:
        if self.from_ == self.to:
            raise ValueError("`from` and `to` are the same")
        return self


class TriggerDefinition(Definition):
    """A message to a webhook or a topic about each person who enters or leaves a segment, begins or ceases to meet a search, or
    has another value of an attribute."""

    when: When
    expires: Duration | None = Field(
        default="1d",
        description="A change whose events are older than this is not reported, so that backfills and replays are silent; nor "
        "is a message that the receiver did not take for so long. Null: none is too old.",
    )
    limits: tuple[MessageLimit, ...] = Field(default=(), max_length=10)
    group: Group | None = None
    quiet: QuietHours | None = None
    view: str | None = Field(
        default=None, pattern=NAME_PATTERN, description="Whose attributes the message has. Default: none."
    )
    webhook: str | None = Field(
        default=None,
        pattern=WEBHOOK_PATTERN,
        description="Name of one of `[[profiles.webhooks]]` of the configuration.",
    )
    topic: str | None = Field(
        default=None,
        pattern=TOPIC_PATTERN,
        description="Or the topic of one of `[[profiles.topics]]`.",
        exclude_if=lambda topic: topic is None,
    )

    @model_validator(mode="after")
    def _one_receiver(self) -> Self:
        if (self.webhook is None) == (self.topic is None):
            raise ValueError("give one of `webhook` and `topic`")
        return self

    @property
    def receiver(self) -> str:
        """The name under which messages wait."""
        return self.webhook or topic_receiver(self.topic or "")

    @property
    def receiver_text(self) -> str:
        """The receiver in a sentence."""
        return f"topic {self.topic}" if self.webhook is None else f"webhook {self.webhook}"

    @property
    def segment(self) -> str:
        """The name of the segment that is followed. An own search and an attribute have names that no named segment has."""
        if self.when.attribute is not None:
            return f"{VALUES}{self.name}:{zlib.crc32(self.when.attribute.encode()):08x}"
        return self.when.segment or f"trigger:{self.name}"

    @property
    def kinds(self) -> tuple[Literal["entered", "left"], ...]:
        """The kinds of the crossings that are reported."""
        if self.when.change == "changes":
            return ("entered", "left")
        return ("entered",) if self.when.change in ("entered", "becomes_true") else ("left",)


class TriggerDocument(TriggerDefinition):
    """One stored, immutable version of a trigger. `query` has what the trigger's own search meant when it was saved."""

    version: int = Field(ge=1)
    query: list[Any] | None = None

    def own_segment(self) -> Segment | None:
        """The nameless segment of an own search, whose version changes with the search alone, or of an attribute."""
        if (path := self.when.attribute) is not None:
            has_it = queries.Query((queries.Exists(path),))
            return Segment(self.segment, 1, has_it, has_it, attribute=path)
        if self.query is None:
            return None
        query = queries.from_json(self.query)
        return Segment(self.segment, zlib.crc32(canonical.encode(self.query)), query, query)


class Occurrence(NamedTuple):
    """A profile entered or left the segment of a trigger at a moment, by the ledger: its crossing of this number. `profile` is
    the keyed hash of its id in hexadecimal. The condition has held for its events since `since_ms`, or longer. `refused` says
    why it is no change of a person: `merged`, `split`, or that nobody may be told of her."""

    profile: str
    number: int
    at_ms: int
    since_ms: int
    refused: str = ""


class TriggerDecision(NamedTuple):
    """The decision on an occurrence: `id` of the delivery, which a replay has again; the `reason` of a suppression. A message is
    sent from `due_ms` on."""

    id: str
    outcome: Outcome
    reason: str
    due_ms: int


class LedgerLine(NamedTuple):
    """The last of what came of a crossing. Moments are epoch milliseconds; `until_ms` is the end of quiet hours."""

    id: str
    trigger: str
    version: int
    profile: str
    number: int
    crossed_ms: int
    at_ms: int
    outcome: Outcome
    reason: str = ""
    until_ms: int | None = None

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        return self._asdict()
