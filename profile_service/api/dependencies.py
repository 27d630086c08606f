"""What routes get: the service, its caller, and how profiles are read."""

from __future__ import annotations

from typing import Annotated, Any, cast

from fastapi import Depends, Query, Request
from pydantic import BaseModel, BeforeValidator, Field

from idgraph.model.callers import Caller, Scope
from idgraph.web.refusals import ForbiddenError
from profile_service.service import ProfileService
from profile_service.wanted import Wanted

MOST_FIELDS = 100
LONGEST_PURPOSE = 200


class ReadingBody(BaseModel):
    """What an answer shows of profiles."""

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


def _parts(stated: list[str]) -> list[str]:
    return [each for some in stated for each in some.split(",") if each]


class _ReadingParams(ReadingBody):
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
    service: Service, caller: ActingCaller, reading: Annotated[_ReadingParams, Query()]
) -> Wanted:
    return reading.wanted(service, caller)


WaitFor = Annotated[
    str | None,
    Query(
        max_length=1000,
        description="Answer when the event at this position is in force: `kafka:TOPIC/PARTITION/OFFSET` or "
        "`file:DIRECTORY/NAME`. 503 after five seconds.",
    ),
]


def _after(is_indexed: bool) -> Any:
    async def wait(service: Service, wait_for: WaitFor = None) -> None:
        if wait_for is not None:
            await service.wait_for(wait_for, is_indexed)

    return Depends(wait)


AFTER_COMMIT, AFTER_INDEX = _after(is_indexed=False), _after(is_indexed=True)
"""Of routes that take `wait_for`."""

WantedParts = Annotated[Wanted, Depends(_wanted)]
