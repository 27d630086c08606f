"""Edits of many attributes at once, the purge of those that nobody decided on, and which attributes are
new."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field, model_validator
from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool

from idgraph.model.attributes import AttributeDefinition, AttributeMetadata, AttributeStatus, Classification
from idgraph.model.documents import StrictDocument
from idgraph.model.records import (
    DiscoveryCounts,
    PurgeRecord,
)
from idgraph.web.refusals import ClashError, ForbiddenError, RefusedRequestError, UnknownSubjectError
from metadata_service.api.access import require_fields
from metadata_service.api.routes.pipeline import Wait
from metadata_service.api.service import Acting, Actor, MetadataService, Reason, Service
from metadata_service.attributes import catalogue
from metadata_service.attributes.policies import opened_by_attribute
from metadata_service.attributes.policy_changes import request_change
from metadata_service.attributes.rules import classification_levels
from metadata_service.attributes.undecided import Purge, discovery_counts, purge
from metadata_service.storage.database import Revision, has_revision, revision_in
from metadata_service.storage.edits import Edit
from metadata_service.storage.tokens import TokenRecord
from transforms.schema.attribute_nodes import policy_of

MOST_AT_ONCE = 200
MOST_NEW = 100

edits = APIRouter(prefix="/v1/attribute-edits", tags=["attributes"])


class ChosenAttribute(StrictDocument):
    """An attribute as its editor saw it: of another version by now, it is left alone."""

    path: str = Field(min_length=1, max_length=1024)
    version: int = Field(ge=1, lt=2**31)


class AttributeEdits(StrictDocument):
    """One act for many attributes. `promote` makes them active, `reject` retires them: stored values stay,
    new ones are not indexed. `classify` gives them a classification, and protects them as its level says,
    never less than now."""

    act: Literal["promote", "reject", "classify"]
    classification: Classification | None = Field(default=None, description="For `classify`.")
    reason: str = Field(min_length=1, max_length=1000)
    attributes: list[ChosenAttribute] = Field(min_length=1, max_length=MOST_AT_ONCE)

    @model_validator(mode="after")
    def _whole(self) -> AttributeEdits:
        if (self.act == "classify") is (self.classification is None):
            raise ValueError("`classification` belongs to `classify`")
        return self


class EditResult(BaseModel):
    """The result for one of them. One that `waits` weakens protection: a second person approves policy change
    `change`."""

    path: str
    result: Literal["saved", "unchanged", "waits", "refused"]
    change: int | None = None
    problem: str | None = None


class EditResults(BaseModel):
    """In the order of the request."""

    results: list[EditResult]


@edits.post("")
def edit_many(wanted: AttributeEdits, service: Service, caller: Acting) -> EditResults:
    """Promote, reject or classify many attributes with one reason. Each is an edit of its own: one that is
    refused, or was edited meanwhile, does not stop the others."""
    return EditResults(results=[_edited(service, caller, wanted, each) for each in wanted.attributes])


def _edited(
    service: MetadataService, caller: TokenRecord, wanted: AttributeEdits, chosen: ChosenAttribute
) -> EditResult:
    try:
        with service.database.write(caller.name, wanted.reason) as edit:
            known = AttributeMetadata.model_validate_json(catalogue.get_attribute(edit.session, chosen.path))
            if known.version != chosen.version:
                raise ClashError(f"version {known.version} was saved meanwhile")
            definition = _definition(edit, wanted, known)
            planned = catalogue.plan_attribute(edit, definition, lambda _: None)
            require_fields(caller, planned, definition)
            if weakens := opened_by_attribute(edit.session, planned):
                change = request_change(
                    edit, "attribute", chosen.path, planned.before, planned.after, weakens
                )
                return EditResult(path=chosen.path, result="waits", change=change.id)
            catalogue.carry_out(edit, planned)
            return EditResult(path=chosen.path, result="saved" if edit.changed else "unchanged")
    except (ClashError, ForbiddenError, RefusedRequestError, UnknownSubjectError) as error:
        return EditResult(path=chosen.path, result="refused", problem=str(error))


def _definition(edit: Edit, wanted: AttributeEdits, known: AttributeMetadata) -> AttributeDefinition:
    stated = {field: getattr(known, field) for field in AttributeDefinition.model_fields}
    if wanted.classification is not None:
        level = classification_levels(edit.session).policy(wanted.classification)
        stated |= policy_of(known).stricter(policy_of(level))._asdict()
        return AttributeDefinition(**stated | {"classification": wanted.classification})
    is_kept = wanted.act == "promote"
    return AttributeDefinition(
        **stated | {"status": AttributeStatus.ACTIVE if is_kept else AttributeStatus.RETIRED}
    )


events = APIRouter(prefix="/v1/attribute-events", tags=["attributes"])


class NewAttributes(BaseModel):
    """Attributes that events revealed since a state of the catalogue, the newest first."""

    etag: str = Field(description="The ETag of the state now: `since` of the next call.")
    paths: list[str]
    is_all: bool = Field(description=f"False where there are more than {MOST_NEW}.")


Since = Annotated[str, Query(max_length=100, description="The ETag of a state; without one, nothing is new.")]


@events.get("")
async def list_new(service: Service, since: Since = "", wait: Wait = 0) -> NewAttributes:
    """Attributes that were discovered since `since`. With `wait`, the answer comes as soon as the catalogue
    changed, and at the latest then."""
    if wait and since:
        known = Revision.of_etag(since)
        await service.watch.wait(str(known) if known else since, wait)
    return await run_in_threadpool(new_attributes, service, since)


def new_attributes(service: MetadataService, since: str) -> NewAttributes:
    """Those behind an ETag; none behind one that this catalogue never had."""
    known = Revision.of_etag(since)
    with service.database.read() as session:
        found = _since(session, known)
        etag = revision_in(session).etag
    return NewAttributes(etag=etag, paths=found[:MOST_NEW], is_all=len(found) <= MOST_NEW)


def _since(session: Session, known: Revision | None) -> list[str]:
    if known is None or not has_revision(session, known):
        return []
    return catalogue.discovered_since(session, known.version, MOST_NEW + 1)


counts_router = APIRouter(prefix="/v1/discovery-counts", tags=["discovery defaults"])


@counts_router.get("")
def get_counts(service: Service) -> DiscoveryCounts:
    """The number of attributes in the catalogue, and the ones that each source added of late; `waiting`
    counts those over a cap."""
    with service.database.read() as session:
        return discovery_counts(session, datetime.now(UTC))


purges = APIRouter(prefix="/v1/attribute-purges", tags=["attributes"])


@purges.post("")
def purge_undecided(wanted: Purge, service: Service, actor: Actor, reason: Reason = "") -> PurgeRecord:
    """Take attributes that nobody decided on out of the catalogue; by default only say which. Stored values
    stay, and so does what is protected by more than a detector's finding."""
    if wanted.source is None and not wanted.prefix and wanted.created_before is None:
        raise RefusedRequestError("say which: by source, prefix or created_before")
    if not wanted.dry_run and not reason:
        raise RefusedRequestError("a purge has a reason")
    with service.database.write(actor, reason) as edit:
        return purge(edit, wanted)
