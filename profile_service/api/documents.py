"""Bodies of requests, and the shape of answers. Answers are written by the canonical encoder; the models describe them."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from idgraph.model import canonical
from idgraph.model.callers import Caller
from idgraph.model.documents import StrictDocument
from idgraph.web.conditional import etag_of, is_listed
from profile_service.api.service import LONGEST_PURPOSE, MOST_FIELDS, VIEW, ProfileService, Wanted

MOST_LOOKED_UP = 100
LONGEST_QUERY = 10_000


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
    view: AppliedView | None = Field(default=None, description="The view that shaped `attributes`.")
    consents: list[AppliedConsent] | None = Field(
        default=None, description="What the answer rests on, where its view or segment names a purpose."
    )


class LookupResult(BaseModel):
    """The answer for one identifier. `profile` is null where none has it, or where several share it."""

    identifier: str
    profile: ProfileDocument | None
    is_shared: bool = Field(
        description="Whether the rules give the identifier to nobody, as several share it."
    )


class LookupResults(BaseModel):
    """In the order asked for."""

    items: list[LookupResult]


class SearchResults(BaseModel):
    """A page of profiles."""

    items: list[ProfileDocument]
    next: str | None = Field(description="The cursor of the following page; null on the last.")
    warnings: list[str] = Field(description="Clauses that can never match, and the nearest known attribute.")
    q: str | None = Field(description="The search, if it was asked in the search language.")
    corrected: str | None = Field(
        description="The search with the nearest known attributes in place of unknown ones; null without any."
    )
    search: str | None = Field(
        description="A token of the search, sealed: stands for `q` in an address, which logs and histories keep."
    )


class ViewSummary(BaseModel):
    """A view. Its expressions are the metadata service's: they name attributes, hidden ones too."""

    name: str
    version: int
    description: str
    purpose: str | None


class ViewList(BaseModel):
    """By name."""

    items: list[ViewSummary]


class SegmentSummary(ViewSummary):
    """A segment. One that asks for a hidden attribute does not exist for the caller."""


class SegmentList(BaseModel):
    """By name."""

    items: list[SegmentSummary]


class SegmentDetails(SegmentSummary):
    """A segment with its search, the attributes that it asks for, and what uses it."""

    q: str | None
    query: list[Any]
    attributes: list[str]
    used_by: list[str] = Field(description="Such as `webhook NAME`.")


class Members(BaseModel):
    """A page of members, by id."""

    items: list[ProfileDocument]
    next: str | None


class Membership(BaseModel):
    """The segments that the profile of an identifier is in; null where the caller finds no profile."""

    identifier: str
    segments: list[str] | None


class Memberships(BaseModel):
    """In the order asked for."""

    items: list[Membership]


class CountResult(BaseModel):
    """How many profiles match."""

    count: int


class FacetDocument(BaseModel):
    """A value and how many matching profiles have it."""

    value: str | int | float | bool
    profiles: int


class FacetResults(BaseModel):
    """By attribute path, the most frequent values first."""

    facets: dict[str, list[FacetDocument]]


class EventDocument(BaseModel):
    """An event that showed a pair."""

    event: str
    ordinal: int
    spec: str
    spec_version: int


class EvidenceDocument(BaseModel):
    """What events of one source showed of a pair."""

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
    """A link of a path. `to` is the identifier that it leads to; `splits`: unlinked alone, it makes two persons of the ends."""

    to: str
    splits: bool


class CandidateDocument(BaseModel):
    """A value and the event that it came with; null was deleted there."""

    value: Any
    source: str
    event: str
    ordinal: int
    priority: int
    spec: str
    spec_version: int


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
    """Why some identifiers are one person: the accepted links are a forest. Refused ones lead to other persons. And where each
    value came from."""

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


class Explanations(BaseModel):
    """One for the profile of an identifier; several where they share it and it belongs to nobody."""

    items: list[ExplanationDocument]


class PeriodDocument(BaseModel):
    """How long a fragment was part of a profile. Null: from its first event on, or until now."""

    model_config = ConfigDict(populate_by_name=True)

    profile: str
    from_: str | None = Field(alias="from")
    to: str | None


class FragmentHistory(BaseModel):
    """A fragment, and the profiles that it was part of, the oldest first."""

    fragment: str
    periods: list[PeriodDocument]


class Histories(BaseModel):
    """Of each fragment of a profile."""

    items: list[FragmentHistory]


class MoveDocument(BaseModel):
    """A fragment became part of another profile, or a profile entered or left a segment."""

    cursor: str
    at: str
    kind: Literal["merged", "split", "moved", "entered", "left"]
    fragment: str | None = Field(default=None, description="Of merges, splits and moves.")
    previous: str | None = Field(default=None, description="Of merges, splits and moves.")
    segment: str | None = Field(default=None, description="The one that the profile entered or left.")
    profile: str


class Moves(BaseModel):
    """A page of changes, the oldest first. `next` continues behind it, also later: null only where there never was one."""

    items: list[MoveDocument]
    next: str | None


class _Reading(StrictDocument):
    fields_: list[str] | None = Field(
        default=None, alias="fields", max_length=MOST_FIELDS, description="Attribute paths. Default: all."
    )
    provenance: bool = False
    reveal: bool = False
    purpose: str | None = Field(default=None, max_length=LONGEST_PURPOSE)

    view: str | None = Field(default=None, max_length=100, description=VIEW)

    def wanted(self, service: ProfileService, caller: Caller) -> Wanted:
        """Raises ForbiddenError, which is recorded for a reveal, BadQueryError."""
        view = None if self.view is None else service.views()[self.view]
        wanted = Wanted(self.fields_, self.provenance, self.reveal, self.purpose, view)
        service.require_rights(caller, wanted)
        return wanted


class LookupBody(_Reading):
    """Identifiers, each `type:value`."""

    identifiers: list[Annotated[str, Field(max_length=4096)]] = Field(max_length=MOST_LOOKED_UP)


class MembershipBody(StrictDocument):
    """Identifiers, each `type:value`."""

    identifiers: list[Annotated[str, Field(max_length=4096)]] = Field(max_length=MOST_LOOKED_UP)


class QueryBody(StrictDocument):
    """A query: `q` in the search language, or `query` in JSON (a list of conditions that must all hold). Neither: all
    profiles."""

    q: str | None = Field(default=None, max_length=LONGEST_QUERY)
    query: list[Any] | None = Field(
        default=None,
        description='Conditions such as {"term": {"path": "activity.platform", "value": "ios"}}; also prefix, range, words, '
        "exists, all, any, not.",
    )


class SearchBody(QueryBody, _Reading):
    """A search."""

    search: str | None = Field(
        default=None, max_length=10_000, description="`search` of an earlier answer, in place of `q`."
    )
    sort: str | None = Field(
        default=None, max_length=1025, description="Attribute path; with `-` before it the largest first."
    )
    limit: int = Field(default=20, ge=1, le=1000)
    cursor: str | None = Field(default=None, max_length=10_000)


class FacetBody(QueryBody):
    """Facets of a search."""

    paths: list[str] = Field(min_length=1, max_length=20)
    limit: int = Field(default=10, ge=1, le=1000)


def answer(body: Any, if_none_match: str | None = None, status: int = 200) -> Response:
    """A JSON answer that no cache keeps, with its ETag, or 304 if the caller has it."""
    content = canonical.encode(body)
    headers = {"ETag": etag_of(content), "Cache-Control": "no-store"}
    if is_listed(headers["ETag"], if_none_match):
        return Response(status_code=304, headers=headers)
    return Response(content, status, headers, media_type="application/json")
