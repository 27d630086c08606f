"""Requests to the profile service, and what their answers mean."""

from __future__ import annotations

import functools
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
    overload,
)
from urllib.parse import quote

if TYPE_CHECKING:
    from idgraph.client.clients import AsyncProfilesClient, ProfilesClient


class Request(NamedTuple):
    method: str
    path: str
    body: dict[str, Any] | None = None
    params: dict[str, Any] | None = None
    if_match: str | None = None
    is_repeatable: bool = True
    """Whether twice is as once, so that a request of which nobody knows whether it arrived may be sent again."""

    def options(self) -> dict[str, Any]:
        """As httpx takes it."""
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


class Method(Generic[P, T]):
    """A method of both clients that is one request: blocks in the one, is awaited in the other."""

    def __init__(self, make: Callable[Concatenate[Any, P], Asked[T]]) -> None:
        self._make = make
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

        return ask


Follow = Callable[[Any], tuple[Sequence[T], Request | None]]
"""The items of an answer, and the request of the next page; None behind the last one."""
Pages = tuple[Request | None, Follow[T]]
"""The request of the first page, if there is one, and what its answer means."""


class Paged(Generic[P, T]):
    """A method of both clients that iterates over pages, each fetched when it is needed."""

    def __init__(self, make: Callable[Concatenate[Any, P], Pages[T]]) -> None:
        self._make = make
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

        return iterate


def by_cursor(request: Request, named: str) -> Pages[Any]:
    """Pages of `items`, whose `next` is the cursor of the page behind; it belongs into `named`, body or params."""

    def follow(answer: Any) -> tuple[list[Any], Request | None]:
        if answer["next"] is None:
            return answer["items"], None
        return answer["items"], request._replace(
            **{named: getattr(request, named) | {"cursor": answer["next"]}}
        )

    return request, follow


def path_of(segments: Sequence[str]) -> str:
    return "/v1/" + "/".join(quote(each, safe="") for each in segments)


def query_body(query: str | list[Any]) -> dict[str, Any]:
    return {"q": query} if isinstance(query, str) else {"query": query}


class Reading(TypedDict, total=False):
    """How profiles are read. With `purpose` protected values are revealed."""

    fields: Sequence[str] | None
    view: str | None
    provenance: bool
    purpose: str | None


def lookup_request(identifiers: Sequence[str], reading: Reading) -> Request:
    return Request("POST", "/v1/profiles/lookup", {"identifiers": list(identifiers), **reading_body(reading)})


def reading_body(reading: Reading) -> dict[str, Any]:
    stated = {name: value for name, value in reading.items() if value is not None}
    return stated | {"reveal": "purpose" in stated}
