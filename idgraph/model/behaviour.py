"""Behaviour over time as admins define it: activities, which leave entries in timelines, and attributes derived from these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Annotated, Any, Literal, NamedTuple, Self

from pydantic import AwareDatetime, Discriminator, Field, Tag, model_validator

from idgraph.model.attributes import DataType
from idgraph.model.documents import Definition, FrozenDocument
from idgraph.model.durations import Duration, TimeZone
from idgraph.model.stamps import SpecRef

FIELD_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,63}$"
VARIABLE_PATTERN = r"^[A-Za-z][A-Za-z0-9_]{0,63}$"
SKIP_PATTERN = r"^(past_last_row|to_next_row|to_(first|last) [A-Za-z][A-Za-z0-9_]{0,63})$"
DERIVED = "derived:"
"""Before the name of a definition: the spec that its values state, and the source that the catalogue names."""
MODEL = "model:"
"""Before the digest of the model that gave a value: the source that the value states."""
DERIVED_KINDS = ("window", "sessions", "pattern", "expression", "model")
DEFAULT_MOST = 10_000
LARGEST_MOST = 200_000
MOST_GENERATIONS = 1_000_000


Name = Annotated[str, Field(pattern=FIELD_PATTERN)]
Expression = Annotated[str, Field(min_length=1, max_length=10_000)]


class ActivityDefinition(Definition):
    """A named kind of event. Each of its events leaves an entry in the timeline of the event's fragment."""

    source: str = Field(
        default="*", min_length=1, max_length=200, description="A name, or a pattern with `*`."
    )
    event_type: str = Field(
        default="*", min_length=1, max_length=200, description="A name, or a pattern with `*`."
    )
    condition: Expression | None = Field(
        default=None,
        description="JMESPath on the mapped event; an event for which it is false leaves no entry.",
    )
    fields: dict[Name, str] = Field(
        default={},
        max_length=50,
        description="By the name in the entry, the path in the mapped event of a value to keep.",
    )
    time: str | None = Field(
        default=None,
        min_length=1,
        description="Path in the mapped event of its time: epoch milliseconds, or RFC 3339. Default: the ordinal.",
    )
    keep: Duration = Field(
        default="400d", description="Entries older than this are dropped, counted from the newest entry."
    )
    most: int = Field(
        default=DEFAULT_MOST,
        ge=1,
        le=LARGEST_MOST,
        description="The newest so many entries of a person are kept.",
    )
    since: AwareDatetime | None = Field(
        default=None,
        description="Entries before this time may be missing: what is derived from a time before it is incomplete. Null: entries are "
        "whole from the beginning. Not stated: the moment at which the activity comes into force, and later what is stored.",
    )
    generation: int = Field(
        default=0,
        ge=0,
        le=MOST_GENERATIONS,
        description="Entries of earlier generations do not count: raise it where the activity names fewer events than before, and "
        "backfill.",
    )


class ActivityDocument(ActivityDefinition):
    """One stored, immutable version of an activity."""

    version: int = Field(ge=1)


class CalendarPeriod(FrozenDocument):
    """The present day, week (from Monday), month, quarter or year in a time zone."""

    calendar: Literal["day", "week", "month", "quarter", "year"]
    time_zone: TimeZone = "UTC"


def _form_of(over: Any) -> str:
    return (
        "all" if over == "all" else "a period" if isinstance(over, Mapping | CalendarPeriod) else "duration"
    )


# The form that is meant is known, so that its problem alone is reported.
_Lasting = Annotated[Duration, Tag("duration")]
_All = Annotated[Literal["all"], Tag("all")]
_Period = Annotated[CalendarPeriod, Tag("a period")]
Over = Annotated[_Lasting | _Period | _All, Discriminator(_form_of)]
OverTime = Annotated[_Lasting | _All, Discriminator(lambda over: "all" if over == "all" else "duration")]


class Window(FrozenDocument):
    """An aggregate of an activity's entries over a time that ends now.

    The entries are those with `round(now - over, hop) <= time < now`. The hop is a day from 12 days on, an hour from
    12 hours on, else 5 minutes; it is counted from the epoch.
    """

    activity: str
    function: Literal[
        "count", "sum", "average", "min", "max", "first", "last", "last_k", "distinct", "top_k"
    ] = "count"
    field: Name | None = Field(default=None, description="Whose values; `count` alone needs none.")
    condition: Expression | None = Field(default=None, description="JMESPath on an entry's fields.")
    over: Over = Field(
        default="all", description="The last such time, as `30d`; a calendar period; or `all`."
    )
    k: int = Field(default=10, ge=1, le=1000, description="Of `last_k` and `top_k`.")

    @model_validator(mode="after")
    def _has_field(self) -> Self:
        if self.field is None and self.function != "count":
            raise ValueError(f"{self.function} needs a field")
        return self


class SessionWindow(FrozenDocument):
    """Sessions of an activity: an entry at most `gap` after the one before it belongs to the same session, one later begins
    the next; so does one `cap` or more after the session's first entry."""

    activity: str
    condition: Expression | None = None
    gap: Duration = Field(default="30m", description="A longer pause than this ends a session.")
    cap: Duration = Field(default="24h", description="A session is no longer than this.")
    over: OverTime = Field(default="30d", description="`count` is of sessions that begin within it.")
    fields: tuple[Name, ...] = Field(
        default=(), max_length=20, description="Whose values of the first and the last entry are given."
    )


class Pattern(FrozenDocument):
    """A row pattern over a person's entries in the order (time, source, event id), as SQL's MATCH_RECOGNIZE has it."""

    activities: tuple[str, ...] = Field(min_length=1, max_length=20)
    pattern: str = Field(min_length=1, max_length=1000, description="As `A B* C{2,3}? $`.")
    define: dict[Annotated[str, Field(pattern=VARIABLE_PATTERN)], Expression] = Field(
        default={},
        max_length=26,
        description="By variable a JMESPath on an entry: its fields, `activity` and `time`; below the name of a variable the last "
        "entry that it has in the match, the one at hand included; below `first` and the name its first; below `previous` the entry "
        "before. A variable without one takes every entry.",
    )
    within: Duration | None = Field(
        default=None, description="The most from the first to the last entry of a match."
    )
    wait: Duration | None = Field(
        default=None,
        description="`$` holds after an entry that no other follows for this long. Default: after the last entry so far.",
    )
    skip: Annotated[str, Field(pattern=SKIP_PATTERN)] = Field(
        default="past_last_row",
        description="Where the next match may begin: `past_last_row`, `to_next_row`, or at the first or last entry of a variable, "
        "as `to_first B`, `to_last B`.",
    )
    over: OverTime = Field(
        default="all",
        description="Matches count that end within it; its begin is rounded as that of a window.",
    )


class ModelInput(FrozenDocument):
    """A column of a model's row."""

    path: str = Field(min_length=1, max_length=1024, description="The attribute; a derived one too.")
    default: bool | int | float | str | None = Field(
        default=None,
        description="In place of a value that is missing or of another type. Without one the person has no value then.",
    )


class AppliedModel(FrozenDocument):
    """An ONNX model and what it is given of a profile: one row, in the order of the model's inputs and their columns."""

    digest: str = Field(pattern=r"^[0-9a-f]{64}$", description="SHA-256 of the model's bytes.")
    inputs: tuple[ModelInput, ...] = Field(min_length=1, max_length=1000)
    output: str | None = Field(default=None, description="Needed where the model has several.")
    column: int | None = Field(default=None, ge=0, description="Needed where the output has several.")
    digits: int = Field(
        default=6,
        ge=0,
        le=15,
        description="Decimals to which a number is rounded: machines differ in the last ones.",
    )


class DerivedDefinition(Definition):
    """An attribute whose value is a function of a person's attributes and timelines at a moment. One of `window`, `sessions`,
    `pattern`, `expression`, `model` says which."""

    path: str = Field(min_length=1, max_length=1024, description="Where its value stands in the profile.")
    data_type: DataType | None = Field(
        default=None, description="Of the value, for the catalogue; default: what the kind says."
    )
    window: Window | None = None
    sessions: SessionWindow | None = None
    pattern: Pattern | None = None
    expression: Expression | None = Field(default=None, description="JMESPath over the profile's attributes.")
    model: AppliedModel | None = None

    @model_validator(mode="after")
    def _one_kind(self) -> Self:
        if sum(getattr(self, each) is not None for each in DERIVED_KINDS) != 1:
            raise ValueError(f"give one of {', '.join(f'`{each}`' for each in DERIVED_KINDS)}")
        return self

    @property
    def kind(self) -> str:
        """The one of `DERIVED_KINDS` that it has."""
        return next(each for each in DERIVED_KINDS if getattr(self, each) is not None)

    @property
    def activities(self) -> tuple[str, ...]:
        """The activities whose timelines it reads."""
        if self.pattern is not None:
            return self.pattern.activities
        one = self.window or self.sessions
        return () if one is None else (one.activity,)


class DerivedDocument(DerivedDefinition):
    """One stored, immutable version of a derived attribute."""

    version: int = Field(ge=1)

    @property
    def ref(self) -> SpecRef:
        """The name and version that its values state as their origin."""
        return SpecRef(DERIVED + self.name, self.version)


class BehaviourRules(NamedTuple):
    """The definitions in force, each with all activities that it reads; these without fields that policy protects. `is_open` answers
    for a path whether its value may be read without a key: policy does not protect it. `version` grows with each change of a
    definition. `models` are by digest those that can be had."""

    activities: tuple[ActivityDocument, ...] = ()
    derived: tuple[DerivedDocument, ...] = ()
    is_open: Callable[[str], bool] = lambda _: True
    version: int = 0
    models: Mapping[str, bytes] = {}


NO_BEHAVIOUR = BehaviourRules()
