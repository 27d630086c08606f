"""Bodies of requests, and the shape of answers. Answers are written by the canonical encoder; the models describe them."""

from __future__ import annotations

from typing import Annotated, Any, Generic, Literal, TypeVar

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from idgraph.model import canonical
from idgraph.model.documents import StrictDocument
from idgraph.web.conditional import json_answer, tagged
from profile_service.request_bodies import LONGEST_PURPOSE

Item = TypeVar("Item")


class Items(BaseModel, Generic[Item]):
    """A whole list."""

    items: list[Item]


class Reasoned(StrictDocument):
    """The reason of an act."""

    reason: str = Field(
        min_length=1, max_length=LONGEST_PURPOSE, description="Kept with the act, and in the audit log."
    )


class IdentifierDocument(BaseModel):
    """An identifier; its value is a keyed hash (`~...`) where policy protects it."""

    type: str
    value: str


class AppliedView(BaseModel):
    """A view. `problem` says why it could not shape this profile, which has no attributes then."""

    name: str
    version: int
    problem: str | None = None


class AppliedConsent(BaseModel):
    """A consent that was given. Source and time are absent where the caller may not see them."""

    purpose: str
    source: str | None = None
    time: str | int | None = None


class ProfileDocument(BaseModel):
    """One person. A protected value that is not revealed is `{"$protected": true}`."""

    id: str = Field(description="Each id that was ever given out leads to its profile.")
    identifiers: list[IdentifierDocument]
    attributes: dict[str, Any] = Field(description="Nested objects.")
    provenance: dict[str, dict[str, Any]] | None = Field(
        default=None, description="By attribute path, if asked for: source, event, ordinal, priority, spec."
    )
    protected: list[str] | None = Field(
        default=None, description="Paths of protected values, of an answer that reveals them with provenance."
    )
    view: AppliedView | None = Field(default=None, description="The view that shaped `attributes`.")
    consents: list[AppliedConsent] | None = Field(
        default=None,
        description="The consents that the answer rests on, if its view or segment names a purpose.",
    )


Warnings = Annotated[
    list[str],
    Field(
        description="Clauses that can never match, and unknown attributes that were asked for, with the nearest known ones. Absent in other answers than those "
        "of a search, where there are none."
    ),
]


class Incomplete(BaseModel):
    """The parts that a fault keeps out of an answer; only a caller from whom nothing is hidden gets them."""

    stale: int = Field(default=0, description="Profiles under an identifier that is protected by now.")
    unreadable: int = Field(default=0, description="Protected values that could not be opened.")
    damaged: list[str] = Field(default=[], description="Fragments that cannot be read; restore them.")
    underived: dict[str, str] = Field(default={}, description="By path why a definition gave no value.")


class FoundProfile(ProfileDocument):
    """The profile of a look-up."""

    warnings: Warnings | None = None


class LookupResult(BaseModel):
    """The answer for one identifier. `profile` is null where none has it, or where several share it."""

    identifier: str
    profile: ProfileDocument | None
    is_shared: bool = Field(
        description="Whether the rules give the identifier to nobody, as several share it."
    )
    sharing: list[ProfileDocument] | None = Field(default=None, description="Those, if they are asked for.")
    incomplete: Incomplete | None = None
    hint: str | None = Field(default=None, description="A hint, if no spec makes identifiers of this type.")


class SearchResults(BaseModel):
    """A page of profiles."""

    items: list[ProfileDocument]
    next: str | None = Field(description="The cursor of the following page; null on the last.")
    warnings: Warnings
    q: str | None = Field(description="The search, if it was asked in the search language.")
    corrected: str | None = Field(
        description="The search with the nearest known attributes in place of unknown ones; null without any."
    )
    incomplete: Incomplete | None = None
    search: str | None = Field(
        description="A token of the search, sealed: stands for `q` in an address, which logs and histories keep."
    )


class ViewSummary(BaseModel):
    """A view, or a segment. Expressions of a view are the metadata service's: they name attributes, hidden ones too."""

    name: str
    version: int
    description: str
    purpose: str | None


class SegmentDetails(ViewSummary):
    """A segment with its search, the attributes that it asks for, and what uses it."""

    q: str | None
    query: list[Any]
    changes: bool = Field(description="Whether the feed says each time that a member has changed.")
    time_zone: str | None = Field(default=None, description="That of its days, where it is not UTC.")
    attributes: list[str]
    used_by: list[str] = Field(description="Such as `webhook NAME`.")


class Membership(BaseModel):
    """The segments that the profile of an identifier is in; null where the caller finds no profile."""

    identifier: str
    segments: list[str] | None


class CountResult(BaseModel):
    """The number of profiles that match."""

    count: int
    warnings: Warnings | None = None


class MemberCount(BaseModel):
    """The number of members of a segment."""

    count: int
    without_consent: int | None = Field(
        default=None, description="Number of other matches that have not consented to the segment's purpose."
    )


class FacetDocument(BaseModel):
    """A value and how many matching profiles have it."""

    value: str | int | float | bool
    profiles: int


class FacetResults(BaseModel):
    """By attribute path, the most frequent values first."""

    facets: dict[str, list[FacetDocument]]
    warnings: Warnings | None = None


class EventDocument(BaseModel):
    """An event, and the spec version that mapped it."""

    event: str
    ordinal: int
    spec: str
    spec_version: int


class EvidenceDocument(BaseModel):
    """The evidence of one source for a pair."""

    source: str
    strength: float
    oldest: EventDocument
    newest: EventDocument


class LinkDocument(BaseModel):
    """A pair of identifiers. `rule` says why it joins nothing; `decision` is a person's."""

    pair: list[str] = Field(min_length=2, max_length=2)
    rule: str | None = None
    evidence: list[EvidenceDocument]
    decision: str | None = None


class PathLinkDocument(LinkDocument):
    """A link of a path. `to` is the identifier that it leads to; `splits`: unlinked alone, it makes two persons of the
    ends."""

    to: str
    splits: bool


class CandidateDocument(EventDocument):
    """A value and the event that it came with; null was deleted there."""

    value: Any
    source: str
    priority: int


class ValueDocument(CandidateDocument):
    """A value that shows. `lost` are those of the profile's other fragments, the latest first. Within one fragment a later
    value replaces the earlier one, of which nothing is kept, but for what a policy such as `append` keeps."""

    path: str
    policy: str | None = Field(default=None, description="With `values` and `complete`, if not `latest`.")
    values: int | None = None
    complete: bool | None = None
    lost: list[CandidateDocument]


class DecidedPin(BaseModel):
    """A decision on a pair, and when; who and why are absent without the scope `links`."""

    pair: list[str] = Field(min_length=2, max_length=2)
    decision: str = Field(description="`always`, `never`, or `none`, which takes the one before back.")
    who: str | None = None
    why: str | None = None
    at: str


class ExplanationDocument(BaseModel):
    """The links that make some identifiers one person: the accepted ones are a forest. Refused ones lead to
    other persons. With the origin of each value."""

    id: str
    identifiers: list[str]
    accepted: list[LinkDocument]
    refused: list[LinkDocument]
    path: list[PathLinkDocument] | None = Field(
        default=None,
        description="With `with`: the links between the two, empty where they are not one person.",
    )
    values: list[ValueDocument]
    decisions: list[DecidedPin] = Field(description="All on these identifiers, the oldest first.")


class PeriodDocument(BaseModel):
    """The time for which a fragment was part of a profile. Null: from its first event on, or until now."""

    model_config = ConfigDict(populate_by_name=True)

    profile: str
    from_: str | None = Field(alias="from")
    to: str | None


class FragmentHistory(BaseModel):
    """A fragment, and the profiles that it was part of, the oldest first."""

    fragment: str
    periods: list[PeriodDocument]


class ConsentDocument(BaseModel):
    """A person's decision about one purpose, and the event that recorded it."""

    purpose: str
    status: str = Field(description="`given`; every other status is a refusal.")
    source: str
    time: str | int | None
    event: str
    ordinal: int


class FragmentConsent(ConsentDocument):
    """The last decision in a fragment's events; a later decision replaced those before it."""

    fragment: str


class TimelineEntry(BaseModel):
    """The entry that one event left. Fields that the caller may not see are left out."""

    activity: str
    time: int = Field(description="Epoch milliseconds.")
    source: str
    event: str = Field(description="The event's id.")
    spec: str = Field(description="The spec that mapped the event.")
    spec_version: int
    fields: dict[str, Any]


class TimelineSpan(BaseModel):
    """A session of a person, or a match of a pattern."""

    derived: str = Field(description="Name of the derived attribute.")
    kind: Literal["session", "match"]
    begin: int = Field(description="Time of its first entry, in epoch milliseconds.")
    end: int = Field(description="Time of its last entry.")
    entries: int


class ProfileHistory(Items[FragmentHistory]):
    """The fragments that carry an identifier; of the profile that has it, also decisions on its links, and its consents."""

    decisions: list[DecidedPin] = Field(description="All on the profile's identifiers, the oldest first.")
    consents: list[FragmentConsent] = Field(
        description="The consents of each of the profile's fragments, by `ordinal`."
    )


class LookupResults(Items[LookupResult]):
    """In the order of the identifiers."""

    warnings: Warnings | None = None


class MoveDocument(BaseModel):
    """A fragment became part of another profile, or a profile entered, left, or changed in a segment."""

    cursor: str
    at: str
    kind: Literal["merged", "split", "moved", "entered", "left", "changed"]
    fragment: str | None = Field(default=None, description="Only with merges, splits and moves.")
    previous: str | None = Field(default=None, description="Only with merges, splits and moves.")
    segment: str | None = Field(
        default=None, description="The one that the profile entered, left, or changed in."
    )
    profile: str


def plain_answer(etag: str, body: bytes | None) -> Response:
    """The same of a body whose ETag is known; without a body the caller has it."""
    return tagged(etag, body, "no-store")


def answer(body: Any, if_none_match: str | None = None, status: int = 200) -> Response:
    """A JSON answer that no cache keeps, with its ETag, or 304 if the caller has it."""
    return json_answer(canonical.encode(body), if_none_match, status, "no-store")
