"""Sandboxes: copies of the metadata, compared with production, promoted and deleted."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Path, Query, Response

from idgraph.model.attributes import AttributeDefinition
from idgraph.model.errors import MetadataError, SpecError
from idgraph.model.sandboxes import (
    NAME_OF_SANDBOX,
    NewSandbox,
    PromotedItem,
    PromotedList,
    SandboxActivity,
    SandboxComparison,
    SandboxDifference,
    SandboxItem,
    SandboxList,
    SandboxPromotion,
    SandboxRecord,
)
from idgraph.model.specs import SpecDefinition, SpecStatus
from idgraph.web.conditional import Check
from idgraph.web.refusals import ClashError, PreconditionError, UnknownSubjectError
from metadata_service.api.access import is_allowed, require_right
from metadata_service.api.routes import attributes, documents, specs
from metadata_service.api.service import Acting, Actor, MetadataService, Reason, Service
from metadata_service.kinds import KINDS
from metadata_service.models import copy_models
from metadata_service.sandboxes.copying import compare, create_sandbox
from metadata_service.sandboxes.folder import SandboxFolder
from metadata_service.storage.tokens import TokenRecord

router = APIRouter(prefix="/v1/sandboxes", tags=["sandboxes"])

Name = Annotated[str, Path(pattern=NAME_OF_SANDBOX)]
NONE_HERE = (
    "this service keeps no sandboxes: they need the embedded store and index, and one has none of its own"
)


def folder_of(service: MetadataService) -> SandboxFolder:
    """Raises ClashError where there can be none."""
    if service.settings.sandboxes is None:
        raise ClashError(NONE_HERE)
    return SandboxFolder(service.settings.sandboxes)


@router.get("")
def list_(
    service: Service,
    q: Annotated[str, Query(max_length=200, description="Words in the name or the reason.")] = "",
    sort: Literal["name", "-name"] = "name",
) -> SandboxList:
    """All sandboxes, by name."""
    known = [] if service.settings.sandboxes is None else folder_of(service).list()
    words = q.casefold().split()
    found = [each for each in known if all(word in f"{each.name} {each.reason}".casefold() for word in words)]
    return SandboxList(items=found[::-1] if sort == "-name" else found)


@router.post("", status_code=201)
def create(wanted: NewSandbox, service: Service, actor: Actor) -> SandboxRecord:
    """Copy what is in force: specs, attributes, rules, views, segments, defaults and levels; no people, tokens or history.
    `idgraph --sandbox NAME` works there, with a store, an index and keys of its own."""
    folder = folder_of(service)
    record = create_sandbox(service.database, folder, wanted.name, actor, wanted.reason)
    _note(service, actor, wanted.reason, wanted.name, "made")
    return record


@router.get("/{name}/comparison")
def comparison(name: Name, service: Service) -> SandboxComparison:
    """Documents that were edited in the sandbox or in production since the copy, and differ. Contents are without
    versions."""
    return compare(service.database, folder_of(service), name)


@router.get("/{name}/activity")
def activity(name: Name, service: Service) -> SandboxActivity:
    """The size of the stores of the sandbox and of production on this machine, and the flows that run there."""
    folder_of(service).get(name)
    read = service.settings.sandbox_activity
    return SandboxActivity(production=None, sandbox=None) if read is None else read(name)


@router.post("/{name}/promote")
def promote(name: Name, wanted: SandboxPromotion, service: Service, caller: Acting) -> PromotedList:
    """Publish edits of the sandbox, each as its own `PUT` would, by whom that is allowed to: one that weakens
    protection waits for a second person. Refused as a whole (409) where an item was edited in production too since the
    copy: the comparison has both contents."""
    found = compare(service.database, folder_of(service), name)
    chosen = _chosen(found, wanted.items)
    reason = f"from sandbox {name}: {wanted.reason}"[:1000]
    for each in chosen:
        require_right(caller, "PUT", _route(each))
    if wanted.dry_run:
        return PromotedList(
            items=[
                PromotedItem(
                    kind=each.kind, name=each.name, outcome="planned", detail="; ".join(each.weakens)
                )
                for each in chosen
            ]
        )
    if is_allowed(caller.role, "POST", "/v1/models"):
        _take_models(service, name, caller.name, reason, chosen)
    return PromotedList(items=[_promoted(service, caller, each, reason) for each in chosen])


@router.delete("/{name}", status_code=204)
def delete(name: Name, service: Service, actor: Actor, reason: Reason = "") -> Response:
    """Remove a sandbox with all its profiles, keys first."""
    folder = folder_of(service)
    with folder.lock():
        folder.delete(name)
    _note(service, actor, reason, name, "deleted")
    return Response(status_code=204)


def _note(service: MetadataService, actor: str, reason: str, name: str, action: Any) -> None:
    with service.database.write(actor, reason) as edit:
        edit.record("sandbox", name, None, action)


def _chosen(found: SandboxComparison, items: list[SandboxItem] | None) -> list[SandboxDifference]:
    """In the order of the comparison. Raises UnknownSubjectError, ClashError."""
    if items is None:
        return [each for each in found.items if each.is_promotable and not each.weakens]
    known = {each.item: each for each in found.items}
    for item in items:
        each = known.get(item)
        if each is None:
            raise UnknownSubjectError(f"{item} does not differ from production")
        if each.state == "conflict":
            raise ClashError(
                f"{item} was edited in production too since the copy (snapshot {found.sandbox.snapshot_version}); "
                "compare both, edit it in production, and leave it out here"
            )
        if each.state == "behind":
            raise ClashError(f"{item} was edited in production only: there is nothing to promote")
    wanted = set(items)
    return [each for each in found.items if each.item in wanted]


def _route(each: SandboxDifference) -> str:
    return "/".join(("/v1", KINDS[each.kind].path, *filter(None, (quote(each.name, safe=""),))))


def _take_models(
    service: MetadataService, name: str, actor: str, reason: str, chosen: list[SandboxDifference]
) -> None:
    """Save the models that derived attributes of a sandbox name: others than admins promote those that are here."""
    models = [(each.sandbox or {}).get("model") for each in chosen]
    if digests := {each["digest"] for each in models if each is not None}:
        with (
            folder_of(service).opened(name) as sandbox,
            sandbox.read() as copy,
            service.database.write(actor, reason) as edit,
        ):
            copy_models(copy, edit, digests)


def _promoted(
    service: MetadataService, caller: TokenRecord, each: SandboxDifference, reason: str
) -> PromotedItem:
    def is_as_compared(_: str | None) -> None:
        with service.database.read() as session:
            if KINDS[each.kind].content(session, each.name) != each.production:
                raise PreconditionError("it was edited in production meanwhile; compare again")

    outcome = PromotedItem(kind=each.kind, name=each.name, outcome="published")
    try:
        answer = _put(service, caller, each, is_as_compared, reason)
    except (MetadataError, SpecError) as error:
        return outcome.model_copy(update={"outcome": "refused", "detail": str(error)})
    if answer.status_code == 202:
        location = answer.headers["Location"]
        return outcome.model_copy(update={"outcome": "waits", "detail": location})
    return outcome


def _put(
    service: MetadataService, caller: TokenRecord, each: SandboxDifference, check: Check, reason: str
) -> Response:
    """Save an item as its `PUT` does."""
    by_caller = (service, caller, check, reason)
    if each.kind == "attribute":
        return attributes.put(each.name, AttributeDefinition.model_validate(each.sandbox), *by_caller)
    if each.kind != "spec":
        kind = KINDS[each.kind]
        stated = kind.stated.model_validate(each.sandbox)
        return documents.put_document(kind, stated, service, caller.name, check, reason)
    spec = SpecDefinition.model_validate(each.sandbox)
    if spec.status is not SpecStatus.RETIRED:
        return specs.put(each.name, spec, *by_caller)
    require_right(caller, "POST", f"/v1/specs/{each.name}/status")
    change = specs.StatusChange(status=SpecStatus.RETIRED, reason=reason)
    return specs.set_status(each.name, change, service, caller.name, check)
