"""Routes for consents. A decision becomes an event of a source, as everything that changes a profile."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Response
from pydantic import AwareDatetime, BaseModel, Field

from idgraph.model import canonical
from idgraph.model.callers import Caller
from idgraph.model.documents import StrictDocument
from idgraph.model.identifiers import Identifier
from idgraph.web.refusals import RefusedRequestError
from profile_service.api.dependencies import ActingCaller, Officer, Service
from profile_service.api.documents import ConsentDocument, Items, answer
from profile_service.api.routes.profiles import AskedIdentifier, the_profile
from profile_service.consents import ROOT, WITHDRAWN, consent_of, consents_of
from profile_service.service import ProfileService
from profile_service.visibility import HIGHEST
from profile_service.wanted import MASKED

CLOCK_SKEW = timedelta(minutes=1)

Purpose = Annotated[str, Path(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")]

router = APIRouter(prefix="/v1/profiles/{identifier}/consents", tags=["consents"])


class ConsentDecision(StrictDocument):
    """A person's decision. The latest `time` counts, and nothing is kept in force by a clock that was ahead.
    A retry with the same `time` is the same event."""

    status: Literal["given", "withdrawn"]
    source: str = Field(min_length=1, max_length=200, description="The channel in which the person decided.")
    time: AwareDatetime | None = Field(
        default=None, description="Time of the decision, not in the future. Default: now."
    )


class Recorded(BaseModel):
    """The event; the profile has it as soon as the flow processed it, within two seconds."""

    event: str


@router.get("", response_model=Items[ConsentDocument])
def get(identifier: AskedIdentifier, service: Service, caller: ActingCaller) -> Response:
    """A person's decisions by purpose, as far as the caller may see them."""
    profile = the_profile(service, caller, identifier, MASKED)
    return answer({"items": [each._asdict() for each in consents_of(profile)]})


@router.put("/{purpose}", response_model=Recorded, status_code=202)
def put(
    identifier: AskedIdentifier, purpose: Purpose, body: ConsentDecision, service: Service, caller: Officer
) -> Response:
    """Publish a person's decision as an event of the source `[profiles] consent_source`. Needs the scope `privacy`."""
    the_profile(service, caller, identifier, MASKED)
    return record_decision(service, caller, identifier, purpose, body)


def record_decision(
    service: ProfileService, caller: Caller, identifier: Identifier, purpose: str, body: ConsentDecision
) -> Response:
    """Publish a decision as an event. Raises RefusedRequestError, PublishError."""
    now = datetime.now(UTC)
    time = body.time or now
    if time > now + CLOCK_SKEW:
        raise RefusedRequestError("a person decides now, not in the future", "/time")
    profile = the_profile(service, caller.model_copy(update={"clearance": HIGHEST}), identifier, MASKED)
    known, moment = consent_of(profile, purpose), int(time.timestamp() * 1000)
    is_now = body.time is None or (body.status == WITHDRAWN and time > now - CLOCK_SKEW)
    # Only decisions up to now count: a clock that was ahead must not keep one in force.
    if is_now and known and known.ordinal >= now.timestamp() * 1000 and known.status != body.status:
        moment = max(moment, known.ordinal + 1)
    consent = {"status": body.status, "source": body.source, "time": time.isoformat(timespec="milliseconds")}
    event: dict[str, Any] = {
        "at": moment,
        "identifiers": {identifier.type: identifier.value},
        ROOT: {purpose: consent},
    }
    # Keyed: whoever sees the event could try identifiers otherwise.
    event["id"] = service.hashed(f"event:{canonical.encode(event).decode()}").partition("~")[2]
    publish = service.rights.consents.publisher(identifier, service.following.edition().snapshot)
    named = service.hashed(profile.id)
    service.note(caller, "consent", profile=named, attributes=[f"{ROOT}.{purpose}"], status=body.status)
    publish([canonical.encode(event) + b"\n"])
    return answer({"event": event["id"]}, status=202)
