"""The methods that both clients have: each is one request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Unpack

from idgraph.client.requests import (
    Asked,
    Method,
    Paged,
    Pages,
    Profile,
    Reading,
    Request,
    by_cursor,
    lookup_request,
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
        return Request("POST", "/v1/search/count", query_body(query)), lambda answer: answer["count"]

    @Method
    def facets(self, path: str, query: str | list[Any] = "", limit: int = 10) -> Asked[list[tuple[Any, int]]]:
        """The most frequent values of an attribute among the profiles that match, each with their number."""
        body = query_body(query) | {"paths": [path], "limit": limit}
        return Request("POST", "/v1/search/facets", body), lambda answer: [
            (each["value"], each["profiles"]) for each in answer["facets"][path]
        ]

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
        clear. A `POST` that may have arrived is not sent again."""
        request = Request(method, path_of(path), body, params, if_match, is_repeatable=method != "POST")
        return request, lambda answer: answer
