"""The requests of both clients, and the meaning of their answers."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Generic,
    NamedTuple,
    ParamSpec,
    Self,
    TypedDict,
    TypeVar,
    Unpack,
    get_type_hints,
    overload,
)
from urllib.parse import quote

from idgraph.model.errors import ProfileServiceError, QueryError

if TYPE_CHECKING:
    from idgraph.client.clients import AsyncProfilesClient, ProfilesClient


MOST_AT_ONCE = 100


class Request(NamedTuple):
    method: str
    path: str
    body: dict[str, Any] | None = None
    params: dict[str, Any] | None = None
    if_match: str | None = None
    is_repeatable: bool = True
    """Whether sending twice has the effect of once, so that a request that may have arrived may be sent
    again."""

    def options(self) -> dict[str, Any]:
        """The request as httpx takes it."""
        headers = {} if self.if_match is None else {"If-Match": self.if_match}
        return {
            "method": self.method,
            "url": self.path,
            "json": self.body,
            "params": self.params,
            "headers": headers,
        }


P = ParamSpec("P")
T = TypeVar("T")
Profile = dict[str, Any]
Asked = tuple[Request, Callable[[Any], T]]
"""A request, and what its answer means."""


class Reading(TypedDict, total=False):
    """The parts of profiles to read. With `purpose` protected values are revealed."""

    fields: Sequence[str] | None
    view: str | None
    provenance: bool
    purpose: str | None
    show_identifiers: bool | None


def _signature(make: Callable[..., Any]) -> inspect.Signature:
    """The signature as a caller sees it, in a notebook's help too. It has no client, each parameter of
    `Reading` by its name, and the answer in place of the request."""
    own = inspect.signature(make)
    _, *parameters = own.parameters.values()
    if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD:
        named = get_type_hints(Reading)
        parameters[-1:] = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=False if kind is bool else None,
                annotation=kind.__name__ if kind is bool else str(kind).replace("collections.abc.", ""),
            )
            for name, kind in named.items()
        ]
    form, _, answer = str(own.return_annotation).removesuffix("]").partition("[")
    return inspect.Signature(
        parameters, return_annotation=answer if form == "Asked" else f"Iterator[{answer}]"
    )


def _signed(call: Any, signature: inspect.Signature) -> Any:
    call.__signature__ = signature
    return call


class Method(Generic[P, T]):
    """A method of both clients that is one request: blocks in the one, is awaited in the other."""

    def __init__(self, make: Callable[Concatenate[Any, P], Asked[T]]) -> None:
        self._make = make
        self._signature = _signature(make)
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, client: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(self, client: ProfilesClient, owner: Any = None) -> Callable[P, T]: ...
    @overload
    def __get__(
        self, client: AsyncProfilesClient, owner: Any = None
    ) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, client: Any, owner: Any = None) -> Any:
        if client is None:
            return self

        @functools.wraps(self._make)
        def ask(*words: P.args, **named: P.kwargs) -> Any:
            return client.ask(*self._make(client, *words, **named))

        return _signed(ask, self._signature)


Follow = Callable[[Any], tuple[Sequence[T], Request | None]]
"""The items of an answer, and the request of the next page; None behind the last one."""
Pages = tuple[Request | None, Follow[T]]
"""The request of the first page, if there is one, and what its answer means."""


class Paged(Generic[P, T]):
    """A method of both clients that iterates over pages, each fetched when it is needed."""

    def __init__(self, make: Callable[Concatenate[Any, P], Pages[T]]) -> None:
        self._make = make
        self._signature = _signature(make)
        self.__doc__ = make.__doc__

    @overload
    def __get__(self, client: None, owner: Any = None) -> Self: ...
    @overload
    def __get__(self, client: ProfilesClient, owner: Any = None) -> Callable[P, Iterator[T]]: ...
    @overload
    def __get__(self, client: AsyncProfilesClient, owner: Any = None) -> Callable[P, AsyncIterator[T]]: ...
    def __get__(self, client: Any, owner: Any = None) -> Any:
        if client is None:
            return self

        @functools.wraps(self._make)
        def iterate(*words: P.args, **named: P.kwargs) -> Any:
            return client.pages(*self._make(client, *words, **named))

        return _signed(iterate, self._signature)


def by_cursor(request: Request, named: str, report: Callable[[Any], None] = lambda _: None) -> Pages[Any]:
    """Pages of `items`, whose `next` is the cursor of the page behind; it belongs into `named`, body or params."""
    is_first = True

    def follow(answer: Any) -> tuple[list[Any], Request | None]:
        nonlocal is_first
        if is_first:
            report(answer)
        is_first = False
        if answer["next"] is None:
            return answer["items"], None
        return answer["items"], request._replace(
            **{named: getattr(request, named) | {"cursor": answer["next"]}}
        )

    return request, follow


def path_of(segments: Sequence[str]) -> str:
    """The path of a route. Raises QueryError for a slash in the first segment, which no route has."""
    if "/" in segments[0]:
        parts = segments[0].strip("/").removeprefix("v1/").split("/")
        raise QueryError(
            f"{segments[0]!r} has a slash: parts of the path are arguments of their own, as {', '.join(map(repr, parts))}"
        )
    return "/v1/" + "/".join(quote(each, safe="") for each in segments)


def query_body(query: str | list[Any], time_zone: str) -> dict[str, Any]:
    return {"q" if isinstance(query, str) else "query": query, "time_zone": time_zone}


def lookup_request(identifiers: Sequence[str], reading: Reading) -> Request:
    return Request("POST", "/v1/profiles/lookup", {"identifiers": list(identifiers), **reading_body(reading)})


def reading_body(reading: Reading) -> dict[str, Any]:
    stated = {name: value for name, value in reading.items() if value is not None}
    return stated | {"reveal": "purpose" in stated}


class Methods:
    """Each raises ProfileServiceError when the service refuses, or does not answer after some retries."""

    def report(self, answer: Any) -> None:
        """Pass the warnings of an answer on: it may be empty by mistake."""
        raise NotImplementedError

    @Method
    def lookup(self, identifier: str, **reading: Unpack[Reading]) -> Asked[Profile | None]:
        """The profile of an identifier, `type:value`; None where nobody has it. Raises ProfileServiceError
        with the status 409 for one that several share, and that the rules give to none of them. With
        `purpose` protected values are revealed."""

        def profile(answer: Any) -> Profile | None:
            self.report(answer)
            (item,) = answer["items"]
            if item["is_shared"]:
                detail = "several profiles share the identifier, and the rules give it to none"
                raise ProfileServiceError(f"the profile service answered: {detail}", 409, detail=detail)
            found: Profile | None = item["profile"]
            return found

        return lookup_request([identifier], reading), profile

    @Paged
    def lookups(self, identifiers: Sequence[str], **reading: Unpack[Reading]) -> Pages[Profile | None]:
        """The profiles of any number of identifiers, in their order; None where nobody has one, or several share it."""
        if isinstance(identifiers, str):
            raise QueryError("`lookups` takes a list of identifiers; `lookup` takes one")
        places = iter(range(0, len(identifiers), MOST_AT_ONCE))
        reports = iter([self.report])

        def following() -> Request | None:
            start = next(places, None)
            return (
                None if start is None else lookup_request(identifiers[start : start + MOST_AT_ONCE], reading)
            )

        def profiles(answer: Any) -> tuple[list[Profile | None], Request | None]:
            # The warnings of the first batch: the other batches have the same.
            for report in reports:
                report(answer)
            return [item["profile"] for item in answer["items"]], following()

        return following(), profiles

    @Paged
    def search(
        self,
        query: str | list[Any] = "",
        *,
        sort: str | None = None,
        page: int = 100,
        time_zone: str = "UTC",
        **reading: Unpack[Reading],
    ) -> Pages[Profile]:
        """All profiles that match, in the search language or as JSON conditions. `time_zone` is that of moments such as `today`."""
        more = {"sort": sort, "limit": page, **reading_body(reading)}
        return by_cursor(
            Request("POST", "/v1/search", query_body(query, time_zone) | more), "body", self.report
        )

    @Paged
    def members(self, segment: str, *, view: str | None = None, page: int = 100) -> Pages[Profile]:
        """The profiles of a segment."""
        params: dict[str, Any] = {"limit": page} | ({} if view is None else {"view": view})
        request = Request("GET", path_of(("segments", segment, "members")), params=params)
        return by_cursor(request, "params")

    @Paged
    def timeline(
        self,
        identifier: str,
        activities: Sequence[str] = (),
        *,
        since: int | str | None = None,
        until: int | str | None = None,
        page: int = 1000,
    ) -> Pages[dict[str, Any]]:
        """The entries that a person's events left in the timelines of activities (of all, if none is named), the newest first:
        those at or after `since` and before `until`, in epoch milliseconds or as RFC 3339 with an offset."""
        params: dict[str, Any] = {"activity": list(activities), "limit": page}
        params |= {name: each for name, each in (("since", since), ("until", until)) if each is not None}
        request = Request("GET", path_of(("profiles", identifier, "timeline")), params=params)
        return by_cursor(request, "params")

    @Method
    def triggers(self) -> Asked[list[dict[str, Any]]]:
        """The triggers in force, by name."""

        def items(answer: Any) -> list[dict[str, Any]]:
            return list(answer["items"])

        return Request("GET", "/v1/triggers"), items

    @Paged
    def trigger_ledger(self, name: str, *, page: int = 100) -> Pages[dict[str, Any]]:
        """The outcomes of the crossings of a trigger, the newest first: fired, held, waiting, suppressed or failed, and why."""
        request = Request("GET", path_of(("triggers", name, "ledger")), params={"limit": page})
        return by_cursor(request, "params")

    @Paged
    def changes(self, cursor: str = "", segment: str | None = None) -> Pages[dict[str, Any]]:
        """Merges, splits, crossings of segments and changes in them behind a cursor, until now, or those of
        one segment. Each has the cursor to continue with."""
        params = {"cursor": cursor, "limit": 1000} | ({} if segment is None else {"segment": segment})
        request, follow = by_cursor(Request("GET", "/v1/changes", params=params), "params")
        # `next` continues also behind the last change.
        return request, lambda answer: follow(answer) if answer["items"] else ([], None)

    @Method
    def count(self, query: str | list[Any] = "", *, time_zone: str = "UTC") -> Asked[int]:
        """The number of profiles that match. `time_zone` as of `search`."""

        def number(answer: Any) -> int:
            self.report(answer)
            return int(answer["count"])

        return Request("POST", "/v1/search/count", query_body(query, time_zone)), number

    @Method
    def facets(
        self, path: str, query: str | list[Any] = "", limit: int = 10, *, time_zone: str = "UTC"
    ) -> Asked[list[tuple[Any, int]]]:
        """The most frequent values of an attribute among the profiles that match, each with their number. `time_zone` as of
        `search`."""
        body = query_body(query, time_zone) | {"paths": [path], "limit": limit}

        def values(answer: Any) -> list[tuple[Any, int]]:
            self.report(answer)
            return [(each["value"], each["profiles"]) for each in answer["facets"][path]]

        return Request("POST", "/v1/search/facets", body), values

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
