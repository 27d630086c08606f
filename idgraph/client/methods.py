"""The methods that both clients have: each is one request."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Unpack

from idgraph.client.records import (
    ConsentRecord,
    ContactRecord,
    ErasurePreviewRecord,
    ExpiringRecord,
    HouseholdRecord,
    MembershipRecord,
    PersonJobRecord,
    Profile,
    SharedAttribute,
)
from idgraph.client.requests import (
    ITEMS,
    Asked,
    Method,
    Paged,
    Pages,
    Reading,
    Request,
    as_it_is,
    by_cursor,
    consent_request,
    field,
    lookup_request,
    of_profile,
    path_of,
    query_body,
    reading_body,
)

MOST_AT_ONCE = 100


class Methods:
    """Each raises ProfileServiceError when the service refuses, or does not answer after some retries."""

    @Method
    def lookup(self, identifier: str, **reading: Unpack[Reading]) -> Asked[Profile | None]:
        """The profile of an identifier, `type:value`; None where there is none, or where several share it. With `purpose`
        protected values are revealed."""
        return lookup_request([identifier], reading), lambda answer: answer["items"][0]["profile"]

    @Paged
    def lookups(self, identifiers: Sequence[str], **reading: Unpack[Reading]) -> Pages[Profile | None]:
        """The profiles of any number of identifiers, in their order, as of `lookup`."""
        places = iter(range(0, len(identifiers), MOST_AT_ONCE))

        def following() -> Request | None:
            start = next(places, None)
            return (
                None if start is None else lookup_request(identifiers[start : start + MOST_AT_ONCE], reading)
            )

        return following(), lambda answer: ([item["profile"] for item in answer["items"]], following())

    @Paged
    def search(
        self,
        query: str | list[Any] = "",
        *,
        sort: str | None = None,
        page: int = 100,
        **reading: Unpack[Reading],
    ) -> Pages[Profile]:
        """All profiles that match, in the search language or as JSON conditions."""
        more = {"sort": sort, "limit": page, **reading_body(reading)}
        return by_cursor(Request("POST", "/v1/search", query_body(query) | more), "body")

    @Paged
    def members(self, segment: str, *, view: str | None = None, page: int = 100) -> Pages[Profile]:
        """The profiles of a segment."""
        params: dict[str, Any] = {"limit": page} | ({} if view is None else {"view": view})
        request = Request("GET", path_of(("segments", segment, "members")), params=params)
        return by_cursor(request, "params")

    @Paged
    def changes(self, cursor: str = "", segment: str | None = None) -> Pages[dict[str, Any]]:
        """Merges, splits and crossings of segments behind a cursor, until now, or the crossings of one segment; each has the
        cursor to continue with."""
        params = {"cursor": cursor, "limit": 1000} | ({} if segment is None else {"segment": segment})
        request, follow = by_cursor(Request("GET", "/v1/changes", params=params), "params")
        # `next` continues also behind the last change.
        return request, lambda answer: follow(answer) if answer["items"] else ([], None)

    @Method
    def count(self, query: str | list[Any] = "") -> Asked[int]:
        """How many profiles match."""
        return Request("POST", "/v1/search/count", query_body(query)), field("count")

    @Method
    def facets(self, path: str, query: str | list[Any] = "", limit: int = 10) -> Asked[list[tuple[Any, int]]]:
        """The most frequent values of an attribute among the profiles that match, each with their number."""
        body = query_body(query) | {"paths": [path], "limit": limit}
        return Request("POST", "/v1/search/facets", body), lambda answer: [
            (each["value"], each["profiles"]) for each in answer["facets"][path]
        ]

    @Method
    def segments_of(self, identifiers: Sequence[str]) -> Asked[list[list[str] | None]]:
        """The segments of up to 100 profiles, in their order; None where there is no profile."""
        body = {"identifiers": list(identifiers)}
        return Request("POST", "/v1/segments/member-of", body), lambda answer: [
            each["segments"] for each in answer["items"]
        ]

    @Method
    def explain(self, identifier: str) -> Asked[list[dict[str, Any]]]:
        """Why the identifiers of a profile are one person."""
        return of_profile(identifier, "explain"), ITEMS

    @Method
    def history(self, identifier: str) -> Asked[list[dict[str, Any]]]:
        """Who owned an identifier when."""
        return of_profile(identifier, "history"), ITEMS

    @Method
    def consents(self, identifier: str) -> Asked[list[ConsentRecord]]:
        """What a person decided, by purpose."""
        return of_profile(identifier, "consents"), ITEMS

    @Method
    def record_consent(
        self, identifier: str, purpose: str, status: str, source: str, time: datetime | None = None
    ) -> Asked[str]:
        """Record that a person has `given` or `withdrawn` a consent, at `time` (now); the id of the event. `source` says where
        the person decided. Needs the scope `privacy`."""
        return consent_request(("profiles", identifier, "consents", purpose), status, source, time), field(
            "event"
        )

    @Method
    def find_contacts(
        self,
        *,
        name: str | None = None,
        phone: str | None = None,
        email: str | None = None,
        postcode: str | None = None,
        fields: Sequence[str] | None = None,
        limit: int = 10,
    ) -> Asked[list[ContactRecord]]:
        """Customers by what they say of themselves, with typing errors, the most similar first."""
        asked = {"name": name, "phone": phone, "email": email, "postcode": postcode}
        body: dict[str, Any] = {key: value for key, value in asked.items() if value is not None}
        body["limit"] = limit
        body |= {} if fields is None else {"fields": list(fields)}
        return Request("POST", "/v1/contacts", body), ITEMS

    @Method
    def memberships(self, identifier: str) -> Asked[list[MembershipRecord]]:
        """The households of a person, with nothing of the other members. Needs the scope `privacy`."""
        return of_profile(identifier, "households"), ITEMS

    @Method
    def person_token(self, identifier: str, minutes: int = 15) -> Asked[ExpiringRecord]:
        """A token by which a person, whom the caller has authenticated, calls the methods from `households` to `decide`. Needs
        the scope `persons`."""
        body = {"identifier": identifier, "minutes": minutes}
        return Request("POST", "/v1/person-tokens", body), as_it_is

    @Method
    def households(self) -> Asked[list[HouseholdRecord]]:
        """The person's households, with what the others share with the person now."""
        return Request("GET", "/v1/me/households"), ITEMS

    @Method
    def found_household(self, name: str) -> Asked[str]:
        """A new household with the person, known by `name`, as its member; its id."""
        request = Request("POST", "/v1/me/households", {"name": name}, is_repeatable=False)
        return request, field("id")

    @Method
    def invite(self, household: str) -> Asked[ExpiringRecord]:
        """A code to hand on: one person may join with it, within a week."""
        path = path_of(("me", "households", household, "invitations"))
        return Request("POST", path, is_repeatable=False), as_it_is

    @Method
    def accept(self, code: str, name: str) -> Asked[str]:
        """Join the household of an invitation, known by `name`; its id."""
        body = {"code": code, "name": name}
        return Request("POST", "/v1/me/invitations/accept", body, is_repeatable=False), field("id")

    @Method
    def decline(self, code: str) -> Asked[None]:
        """Make the code of an invitation useless."""
        request = Request("POST", "/v1/me/invitations/decline", {"code": code}, is_repeatable=False)
        return request, as_it_is

    @Method
    def share(self, household: str, shares: Sequence[SharedAttribute]) -> Asked[None]:
        """SharedAttribute this with other members, and nothing else from now on."""
        path = path_of(("me", "households", household, "shares"))
        return Request("PUT", path, {"shares": list(shares)}), as_it_is

    @Method
    def leave(self, household: str) -> Asked[None]:
        """End the membership, and all that is shared by and with it."""
        path = path_of(("me", "households", household, "leave"))
        return Request("POST", path, is_repeatable=False), as_it_is

    @Method
    def decide(self, purpose: str, status: str, source: str, time: datetime | None = None) -> Asked[str]:
        """As `record_consent`, by the person's own token."""
        return consent_request(("me", "consents", purpose), status, source, time), field("event")

    @Method
    def request_access(self, identifier: str, reason: str) -> Asked[PersonJobRecord]:
        """Collect all that is stored of a person: a job. This and all below need the scope `privacy`."""
        body = {"identifier": identifier, "reason": reason}
        return Request("POST", "/v1/access-requests", body, is_repeatable=False), as_it_is

    @Method
    def access_request(self, job: str) -> Asked[PersonJobRecord]:
        """How far an access request is."""
        return Request("GET", path_of(("access-requests", job))), as_it_is

    @Method
    def access_document(self, job: str) -> Asked[dict[str, Any]]:
        """The document of an access request that is done, with protected values in the clear."""
        return Request("GET", path_of(("access-requests", job, "download"))), as_it_is

    @Method
    def preview_erasure(self, identifiers: Sequence[str]) -> Asked[ErasurePreviewRecord]:
        """What an erasure of these persons would remove; changes nothing."""
        body = {"identifiers": list(identifiers)}
        return Request("POST", "/v1/erasures/preview", body), as_it_is

    @Method
    def erase(self, identifiers: Sequence[str], reason: str) -> Asked[PersonJobRecord]:
        """Erase whole persons, for good: a job."""
        body = {"identifiers": list(identifiers), "reason": reason}
        return Request("POST", "/v1/erasures", body, is_repeatable=False), as_it_is

    @Method
    def erasure(self, job: str) -> Asked[PersonJobRecord]:
        """How far an erasure is, and its receipt when it is done."""
        return Request("GET", path_of(("erasures", job))), as_it_is

    @Method
    def call(
        self,
        method: str,
        *path: str,
        body: dict[str, Any] | None = None,
        params: dict[str, Any] | None = None,
        if_match: str | None = None,
    ) -> Asked[Any]:
        """Any other route: `call("POST", "links", "preview", body={...})`. `path` are the segments behind `/v1`, in the
        clear."""
        return Request(method, path_of(path), body, params, if_match), as_it_is
