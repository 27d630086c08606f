"""Bodies of requests for profiles, as routes and commands make them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, Field

from idgraph.model.callers import Caller
from idgraph.model.documents import StrictDocument
from idgraph.model.durations import TimeZone
from profile_service.service import ProfileService
from profile_service.wanted import Wanted

MOST_FIELDS = 100
LONGEST_PURPOSE = 200
MOST_LOOKED_UP = 100
LONGEST_QUERY = 10_000


class ReadingBody(BaseModel):
    """The part of profiles that an answer shows."""

    fields_: list[str] | None = Field(
        default=None, alias="fields", max_length=MOST_FIELDS, description="Attribute paths. Default: all."
    )
    provenance: bool = Field(default=False, description="With source, event, spec and stamp of each value.")
    reveal: bool = Field(
        default=False, description="Open protected values, if the caller may; needs `purpose`."
    )
    purpose: str | None = Field(
        default=None, max_length=LONGEST_PURPOSE, description="Why; kept in the audit log."
    )
    view: str | None = Field(
        default=None, max_length=100, description="Name of a view, in place of `fields`."
    )
    show_identifiers: bool = Field(default=True, description="Without, `identifiers` of a profile is empty.")

    def wanted(self, service: ProfileService, caller: Caller) -> Wanted:
        """Raises ForbiddenError, which is recorded for a reveal, BadQueryError."""
        view = None if self.view is None else service.views()[self.view]
        wanted = Wanted(self.fields_, self.provenance, self.reveal, self.purpose, view, self.show_identifiers)
        service.require_rights(caller, wanted)
        return wanted


class IdentifiersBody(StrictDocument):
    """Identifiers, each `type:value`."""

    identifiers: list[Annotated[str, Field(max_length=4096)]] = Field(max_length=MOST_LOOKED_UP)


class LookupBody(IdentifiersBody, ReadingBody):
    """Identifiers, and what is asked of each."""

    sharing: bool = Field(
        default=False, description="Show the profiles that share an identifier which belongs to none of them."
    )


class Words(BaseModel):
    """A query in the search language."""

    q: str | None = Field(
        default=None,
        max_length=LONGEST_QUERY,
        description="Such as `demographics.age>=30 OR guitar`. Default: all profiles.",
    )
    time_zone: TimeZone = Field(
        default="UTC",
        description="Such as Europe/Berlin: the days of moments like `today-7d` that name no zone.",
    )


class QueryBody(StrictDocument, Words):
    """A query: `q`, or `query` in JSON (a list of conditions that must all hold)."""

    words: list[str] | None = Field(
        default=None,
        max_length=1000,
        description="In place of `q`: clauses that must all hold, as arguments of `idgraph search`.",
    )
    query: list[Any] | None = Field(
        default=None,
        description='Conditions such as {"term": {"path": "activity.platform", "value": "ios"}}; also prefix, range, words, '
        "exists, all, any, not.",
    )


class SearchParams(Words):
    """A query in the search language, the order of its results, and the page to answer."""

    sort: str | None = Field(
        default=None, max_length=1025, description="Attribute path; `-PATH` for the largest first."
    )
    limit: int = Field(default=20, ge=1, le=1000)
    cursor: str | None = Field(default=None, max_length=10_000, description="`next` of the page before.")


class SearchBody(QueryBody, SearchParams, ReadingBody):
    """A search."""

    search: str | None = Field(
        default=None, max_length=10_000, description="`search` of an earlier answer, in place of `q`."
    )


class FacetBody(QueryBody):
    """Facets of a search."""

    paths: list[str] = Field(min_length=1, max_length=20)
    limit: int = Field(default=10, ge=1, le=1000)
