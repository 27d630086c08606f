"""Routes for the flows beside this service, for callers with the scope `operate`: what each one does, pause and resume."""

from __future__ import annotations

import logging
import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel, Field

from idgraph.model.callers import Caller, Scope
from idgraph.model.errors import ConfigError, SourceUnavailableError, StoreError
from idgraph.model.flows import FlowPause, FlowReport, SourceHold
from idgraph.model.sources import FLOW_NAME
from idgraph.web.refusals import ClashError, RefusedRequestError, UnknownSubjectError
from profile_service.api.dead_letters import ShownEvent
from profile_service.api.dependencies import Operator, Service, scoped
from profile_service.api.documents import Items, Reasoned, answer
from profile_service.api.rights import required
from profile_service.reader import ProfileReader
from profile_service.service import ProfileService

log = logging.getLogger(__name__)

MOST_SAMPLED = 50

router = APIRouter(prefix="/v1/flows", tags=["flows"])

Name = Annotated[str, Path(pattern=FLOW_NAME)]


class FlowDocument(BaseModel):
    """A flow of this folder."""

    name: str
    age_seconds: float = Field(description="Since its last report.")
    is_stale: bool = Field(
        description="Whether it should have reported since: its process was killed, or does not get on."
    )
    pause: FlowPause | None = Field(description="The caller who paused it; null while it may run.")
    held: list[SourceHold] = Field(description="The sources that wait, with why.")
    newest_snapshot: int = Field(description="Version of the snapshot that this service follows.")
    report: FlowReport


class FlowList(BaseModel):
    """Flows, by name."""

    items: list[FlowDocument]
    damaged: list[str] = Field(description="Names of flows whose files cannot be read.")


@router.get("", response_model=FlowList)
def list_(service: Service, _: Operator) -> Response:
    """All flows that have run on this machine, as they last reported."""
    items, damaged = [], []
    for name in required(service.rights.flows).names():
        try:
            items.append(_document(service, name))
        except StoreError as error:
            log.warning("%s; the other flows are shown", error)
            damaged.append(name)
    return answer({"items": items, "damaged": damaged})


@router.get("/{name}", response_model=FlowDocument)
def get(name: Name, service: Service, _: Operator) -> Response:
    """One flow."""
    return answer(_document(service, name))


@router.post("/{name}/pause", response_model=FlowDocument)
def pause(name: Name, body: Reasoned, service: Service, caller: Operator) -> Response:
    """Let a flow begin no further micro-batch until it is resumed, also when it starts again. Projection, erasures and jobs
    go on. 409 if it is paused."""
    _document(service, name)
    service.note(caller, "pause flow", subject=name, purpose=body.reason)
    asked = FlowPause(who=caller.name, why=body.reason, at_ms=time.time_ns() // 1_000_000)
    if not required(service.rights.flows).pause(name, asked):
        raise ClashError("the flow is paused already")
    return answer(_document(service, name))


@router.post("/{name}/resume", response_model=FlowDocument)
def resume(
    name: Name,
    body: Reasoned,
    service: Service,
    caller: Operator,
    source: Annotated[
        str | None, Query(pattern=FLOW_NAME, description="A source that waits: it is tried again.")
    ] = None,
) -> Response:
    """Let a paused flow go on, or a source that waits. 409 if it is not paused, or does not wait."""
    _document(service, name)
    if source is not None:
        service.note(caller, "resume source", subject=f"{name}/{source}", purpose=body.reason)
        if not required(service.rights.flows).held(name).try_again(source):
            raise ClashError("the source does not wait")
        return answer(_document(service, name))
    service.note(caller, "resume flow", subject=name, purpose=body.reason)
    if not required(service.rights.flows).resume(name):
        raise ClashError("the flow is not paused")
    return answer(_document(service, name))


sources_router = APIRouter(prefix="/v1/sources", tags=["flows"])


class SourceNames(BaseModel):
    """The names of the configured sources in their events."""

    items: list[str]
    are_all: bool = Field(description="False where events of a source bring the name of their own source.")


@sources_router.get("", response_model=SourceNames)
def sources(service: Service, _: Annotated[Caller, scoped(Scope.RULES)]) -> Response:
    """The sources that are configured here, for callers with the scope `rules`: a spec of another one maps nothing."""
    found = required(service.rights.dead_letters).event_sources
    return answer({"items": sorted(found.names), "are_all": found.are_all})


@sources_router.get("/{source}/events", response_model=Items[dict[str, Any]])
def newest_events(
    source: Annotated[str, Path(max_length=64)],
    service: Service,
    caller: Operator,
    event_type: Annotated[str | None, Query(max_length=200, description="Only of this type.")] = None,
    limit: Annotated[int, Query(ge=1, le=MOST_SAMPLED)] = 5,
) -> Response:
    """The newest events of a source, read from its files or topics again: flows are not slowed. Each payload is as of a
    dead letter, as far as policy and clearance show it. `profile` is the one that it is part of by now, null where the
    caller sees none. `dead_letter` is the id of its dead letter where it was set aside, `reason` why. With a type, it
    looks at the newest 200. 404 for a source that is not configured here."""
    edition = service.following.edition()
    most = limit if event_type is None else 200
    reader = service.reader(caller)
    try:
        found = required(service.rights.dead_letters).newest_events(
            source, most, edition.snapshot, edition.etag, reader.sees
        )
    except (ConfigError, SourceUnavailableError) as error:
        raise RefusedRequestError(f"no event of {source} can be shown: {error}") from None
    if found is None:
        raise UnknownSubjectError("no source has this name in the configuration of this service")
    chosen = [each for each in found if event_type in (None, each.type)]
    return answer({"items": [_event(reader, each) for each in chosen[:limit]]})


def _event(reader: ProfileReader, event: ShownEvent) -> dict[str, Any]:
    *shown, identifiers = event
    owners = (
        reader.owning(reader.stored_forms(each)).persons
        for each in identifiers
        if reader.sees_type(each.type)
    )
    profile = next((reader.shown_name(persons[0].id) for persons in owners if persons), None)
    return {**dict(zip(event._fields, shown, strict=False)), "profile": profile}


def _document(service: ProfileService, name: str) -> dict[str, Any]:
    flows = required(service.rights.flows)
    report = flows.report(name)
    if report is None:
        raise UnknownSubjectError("no flow of this name has run on this machine")
    now, pause = time.time(), flows.pause_of(name)
    return {
        "name": name,
        "age_seconds": report.age_seconds(now),
        "is_stale": report.is_silent(now),
        "pause": pause.model_dump(mode="json") if pause else None,
        "held": [each.model_dump(mode="json", exclude={"offsets"}) for each in flows.held(name).holds()],
        "newest_snapshot": service.following.edition().snapshot.version,
        "report": report.model_dump(mode="json"),
    }
