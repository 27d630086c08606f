"""Attribute metadata."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import Field

from idgraph.model.attributes import (
    AttributeDefinition,
    AttributeMetadata,
    AttributeStatus,
    Classification,
    DataType,
    EncryptionLevel,
)
from idgraph.model.documents import StrictDocument
from idgraph.model.records import AttributeVersionRecord
from idgraph.web.conditional import IfNoneMatch, Precondition, created, json_answer
from idgraph.web.cursors import ListPage
from idgraph.web.path_values import path_value
from idgraph.web.refusals import RefusedRequestError
from metadata_service.api.access import require_fields
from metadata_service.api.routes.requests import ASKED, asked
from metadata_service.api.service import Acting, Actor, Paging, Reason, Service
from metadata_service.attributes import catalogue as attributes
from metadata_service.attributes.catalogue import AttributeFacets, AttributeFilter, PlannedAttribute
from metadata_service.attributes.discovery import Verdict, decided
from metadata_service.attributes.effects import AttributeEffect, effect_of
from metadata_service.attributes.lineage import LineageRecord, lineage
from metadata_service.attributes.policies import ATTRIBUTES, opened_by_attribute
from metadata_service.attributes.policy_changes import request_change
from metadata_service.storage.edits import Edit
from metadata_service.storage.tokens import callers_in

router = APIRouter(prefix="/v1/attributes", tags=["attributes"])


async def _path(
    request: Request,
    path: Annotated[str, Path(description="Dotted path; a slash within it is written %2F.")],  # noqa: ARG001
) -> str:
    return path_value(request, 3)


AttributePath = Annotated[str, Depends(_path)]


async def _wanted(
    q: Annotated[
        str,
        Query(
            max_length=200,
            description="Words in path, name, description, owner, tags, source or classification.",
        ),
    ] = "",
    prefix: Annotated[str, Query(max_length=1024, description="Beginning of the path.")] = "",
    source: Annotated[list[str] | None, Query()] = None,
    owner: Annotated[list[str] | None, Query()] = None,
    tag: Annotated[list[str] | None, Query()] = None,
    status: Annotated[list[AttributeStatus] | None, Query()] = None,
    classification: Annotated[list[Classification] | None, Query()] = None,
    encryption: Annotated[list[EncryptionLevel] | None, Query()] = None,
    data_type: Annotated[list[DataType] | None, Query()] = None,
    proposed: Annotated[
        bool, Query(description="Only those whose proposed policy nobody decided on.")
    ] = False,
) -> AttributeFilter:
    facets = (
        source or (),
        owner or (),
        tag or (),
        status or (),
        classification or (),
        encryption or (),
        data_type or (),
    )
    return AttributeFilter(q, prefix, *facets, proposed)


WantedAttributes = Annotated[AttributeFilter, Depends(_wanted)]
Sort = Annotated[
    str,
    Query(
        pattern=r"^-?(path|status|source|classification|encryption|data_type)$",
        description="With `-` before it, the other way round.",
    ),
]


@router.get("")
def search(
    service: Service, paging: Paging, wanted: WantedAttributes, sort: Sort = "path"
) -> ListPage[AttributeMetadata]:
    """Attributes, by path or as `sort` says. A filter that is given twice lets both values pass."""
    with service.database.read() as session:
        return attributes.search_attributes(session, wanted, paging, sort)


facets_router = APIRouter(prefix="/v1/attribute-facets", tags=["attributes"])


@facets_router.get("")
def count(service: Service, wanted: WantedAttributes) -> AttributeFacets:
    """The number of attributes that match, in all and by the values of each filter."""
    with service.database.read() as session:
        return attributes.count_attributes(session, wanted)


@router.put("/{path}", response_model=AttributeMetadata, responses=ASKED | created(AttributeMetadata))
def put(
    path: AttributePath,
    definition: AttributeDefinition,
    service: Service,
    caller: Acting,
    precondition: Precondition,
    reason: Reason = "",
) -> Response:
    """Declare or redefine an attribute. The same definition again makes no new version. One that weakens
    protection is kept until a second person approves it, and answered with 202. An analyst describes, a publisher
    promotes, a privacy officer decides on protection."""
    if definition.path != path:
        raise RefusedRequestError("the path is not the one in the URL", "/path")
    with service.database.write(caller.name, reason) as edit:
        planned = attributes.plan_attribute(edit, definition, precondition)
        require_fields(caller, planned, definition)
        return _saved_or_asked(edit, planned)


@router.get("/{path}", response_model=AttributeMetadata)
def get(path: AttributePath, service: Service, if_none_match: IfNoneMatch = None) -> Response:
    """One attribute."""
    with service.database.read() as session:
        document = attributes.get_attribute(session, path)
    return json_answer(document, if_none_match)


@router.post("/{path}/preview")
def preview(path: AttributePath, definition: AttributeDefinition, service: Service) -> AttributeEffect:
    """The effects of saving a definition on stored values, on their readers and on specs and views. Nothing is stored. `POST
    /v1/search/count` of the profile service counts profiles with a value."""
    if definition.path != path:
        raise RefusedRequestError("the path is not the one in the URL", "/path")
    with service.database.read() as session:
        planned = attributes.plan_attribute(Edit(session, "", "", b""), definition, lambda _: None)
        return effect_of(session, planned, callers_in(session))


@router.get("/{path}/lineage")
def get_lineage(path: AttributePath, service: Service) -> LineageRecord:
    """The specs in force that write it, and the views, segments and identity namespaces that read it."""
    with service.database.read() as session:
        attributes.get_attribute(session, path)
        return lineage(session, path)


class ProposalDecision(StrictDocument):
    """An admin's decision on what a detector proposed: `confirm` or `refuse`."""

    decision: Verdict
    reason: str = Field(default="", max_length=1000)


@router.post("/{path}/proposal", response_model=AttributeMetadata, responses=ASKED)
def decide(path: AttributePath, decision: ProposalDecision, service: Service, actor: Actor) -> Response:
    """Confirm or refuse the proposal of a discovered attribute, which is active then. To refuse one on an
    attribute that more than the proposal seals weakens it: answered with 202."""
    with service.database.write(actor, decision.reason) as edit:
        definition = decided(edit.session, path, decision.decision)
        return _saved_or_asked(edit, attributes.plan_attribute(edit, definition, lambda _: None))


def _saved_or_asked(edit: Edit, planned: PlannedAttribute) -> Response:
    weakens = opened_by_attribute(edit.session, planned)
    if weakens:
        path = planned.after.path
        return asked(request_change(edit, "attribute", path, planned.before, planned.after, weakens))
    document, created = attributes.carry_out(edit, planned)
    return json_answer(document, status=201 if created else 200)


@router.get("/{path}/versions")
def list_versions(path: AttributePath, service: Service, paging: Paging) -> ListPage[AttributeVersionRecord]:
    """All versions of an attribute, the newest first."""
    with service.database.read() as session:
        found = ATTRIBUTES.versions(session, paging, path)
    items = [AttributeVersionRecord(metadata=each.document, **dict(each)) for each in found.items]
    return ListPage(items=items, next=found.next)
