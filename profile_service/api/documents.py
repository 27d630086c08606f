"""Bodies of requests, and the shape of answers. Answers are written by the canonical encoder; the models describe them."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Response
from pydantic import BaseModel, ConfigDict, Field

from idgraph.model import canonical
from idgraph.model.callers import Caller
from idgraph.web.conditional import etag_of, is_listed
from profile_service.api.service import LONGEST_PURPOSE, MOST_FIELDS, Wanted

MOST_LOOKED_UP = 100
LONGEST_QUERY = 10_000


class IdentifierDocument(BaseModel):
    """An identifier; its value is a keyed hash (`~...`) where policy protects it."""

    type: str
    value: str


class ProfileDocument(BaseModel):
    """One person. A protected value that is not revealed is `{"$protected": true}`."""

    id: str = Field(description="Each id that was ever given out leads to its profile.")
    identifiers: list[IdentifierDocument]
    attributes: dict[str, Any] = Field(description="Nested objects.")
    provenance: dict[str, dict[str, Any]] | None = Field(
        default=None, description="By attribute path, if asked for: source, event, ordinal, priority, spec."
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


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class _Reading(_Strict):
    fields_: list[str] | None = Field(
        default=None, alias="fields", max_length=MOST_FIELDS, description="Attribute paths. Default: all."
    )
    provenance: bool = False
    reveal: bool = False
    purpose: str | None = Field(default=None, max_length=LONGEST_PURPOSE)

    def wanted(self, caller: Caller) -> Wanted:
        """Raises ForbiddenError, BadQueryError."""
        wanted = Wanted(self.fields_, self.provenance, self.reveal, self.purpose)
        wanted.require_rights(caller)
        return wanted


class LookupBody(_Reading):
    """Identifiers, each `type:value`."""

    identifiers: list[Annotated[str, Field(max_length=4096)]] = Field(max_length=MOST_LOOKED_UP)


class QueryBody(_Strict):
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

    sort: str | None = Field(
        default=None, max_length=1025, description="Attribute path; with `-` before it the largest first."
    )
    limit: int = Field(default=20, ge=1, le=1000)
    cursor: str | None = Field(default=None, max_length=10_000)


class FacetBody(QueryBody):
    """Facets of a search."""

    paths: list[str] = Field(min_length=1, max_length=20)
    limit: int = Field(default=10, ge=1, le=1000)


def answer(body: Any, if_none_match: str | None = None) -> Response:
    """A JSON answer that no cache keeps, with its ETag, or 304 if the caller has it."""
    content = canonical.encode(body)
    headers = {"ETag": etag_of(content), "Cache-Control": "no-store"}
    if is_listed(headers["ETag"], if_none_match):
        return Response(status_code=304, headers=headers)
    return Response(content, headers=headers, media_type="application/json")
