"""Requests to the profile service, and what their answers mean."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Concatenate, Generic, NamedTuple, ParamSpec, Self, TypeVar, overload
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


def as_it_is(answer: Any) -> Any:
    return answer


def field(name: str) -> Callable[[Any], Any]:
    return itemgetter(name)


ITEMS = field("items")


def of_profile(identifier: str, part: str) -> Request:
    return Request("GET", path_of(("profiles", identifier, part)))


def consent_request(path: Sequence[str], status: str, source: str, time: datetime | None) -> Request:
    # Given here, so that a request that is sent again is the same decision.
    moment = (time or datetime.now(UTC)).isoformat()
    return Request("PUT", path_of(path), {"status": status, "source": source, "time": moment})


def path_of(segments: Sequence[str]) -> str:
    return "/v1/" + "/".join(quote(each, safe="") for each in segments)


def query_body(query: str | list[Any]) -> dict[str, Any]:
    return {"q": query} if isinstance(query, str) else {"query": query}
