"""Dependencies of routes: the service, its caller, and the reading of profiles."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import Depends, Query, Request
from pydantic import BeforeValidator, Field

from idgraph.model.callers import Caller, Scope
from idgraph.web.refusals import ForbiddenError
from profile_service.request_bodies import MOST_FIELDS, ReadingBody
from profile_service.service import ProfileService
from profile_service.wanted import Wanted


def _parts(stated: list[str]) -> list[str]:
    return [each for some in stated for each in some.split(",") if each]


class ReadingParams(ReadingBody):
    """The same as query parameters."""

    fields_: Annotated[list[str] | None, BeforeValidator(_parts)] = Field(
        default=None,
        alias="fields",
        max_length=MOST_FIELDS,
        description="Attribute paths, separated by commas. Default: all.",
    )


async def _service(request: Request) -> ProfileService:
    return cast(ProfileService, request.app.state.service)


async def _caller(request: Request) -> Caller:
    return cast(Caller, request.state.caller)


Service = Annotated[ProfileService, Depends(_service)]
ActingCaller = Annotated[Caller, Depends(_caller)]


def scoped(scope: Scope) -> Any:
    """A dependency: the caller, who must have this scope."""

    async def caller_with(caller: ActingCaller) -> Caller:
        if scope not in caller.scopes:
            raise ForbiddenError(f"the token of this caller has not the scope {scope}")
        return caller

    return Depends(caller_with)


Officer = Annotated[Caller, scoped(Scope.PRIVACY)]
Operator = Annotated[Caller, scoped(Scope.OPERATE)]


async def _wanted(
    service: Service, caller: ActingCaller, reading: Annotated[ReadingParams, Query()]
) -> Wanted:
    return reading.wanted(service, caller)


WaitFor = Annotated[
    str | None,
    Query(
        max_length=1000,
        description="Answer when the event at this position is in force: `kafka:TOPIC/PARTITION/OFFSET`, "
        "`pulsar:TOPIC-partition-N/LEDGER/ENTRY/BATCH` or `file:DIRECTORY/NAME`. 503 after five seconds.",
    ),
]


def _after(is_indexed: bool) -> Any:
    async def wait(service: Service, wait_for: WaitFor = None) -> None:
        if wait_for is not None:
            await service.wait_for(wait_for, is_indexed)

    return Depends(wait)


AFTER_COMMIT, AFTER_INDEX = _after(is_indexed=False), _after(is_indexed=True)
"""Dependencies of routes that take `wait_for`."""

WantedParts = Annotated[Wanted, Depends(_wanted)]
