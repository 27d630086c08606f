"""Mapping specs."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Response
from pydantic import Field

from idgraph.model.documents import NAME_PATTERN, StrictDocument
from idgraph.model.errors import first_few
from idgraph.model.records import (
    PolicyChangeRecord,
    ProtectedPlaceList,
    SpecCheckRecord,
    SpecHealthList,
    SpecRecord,
    VersionRecord,
)
from idgraph.model.specs import SpecCase, SpecDefinition, SpecDocument, SpecStatus
from idgraph.web.conditional import IfNoneMatch, Precondition, created, json_answer
from idgraph.web.cursors import ListPage
from idgraph.web.refusals import ClashError, RefusedRequestError
from metadata_service.api.access import require_right
from metadata_service.api.routes.requests import ASKED, asked
from metadata_service.api.service import Acting, Actor, Paging, Reason, Service
from metadata_service.attributes.catalogue import known_types
from metadata_service.attributes.policy_changes import request_change
from metadata_service.behaviour import DERIVED_ATTRIBUTES
from metadata_service.drafting.draft import SpecDraft, draft_spec
from metadata_service.specs import catalogue as specs
from metadata_service.specs.approval import (
    SpecActivation,
    in_force,
    opened_by_definition,
    opened_by_leaving,
    opened_by_spec,
)
from metadata_service.specs.cases import check_made_up, make_case, require_cases, run_cases
from metadata_service.specs.catalogue import SPECS
from metadata_service.specs.health import spec_health
from metadata_service.specs.input_places import InputPlaces
from metadata_service.specs.moves import moved
from metadata_service.specs.preview import PreviewRecord, preview_event
from metadata_service.specs.rules import check_derived_paths, check_payload, check_spec
from metadata_service.specs.vocabulary import CompletionList, WordKind, completions
from metadata_service.storage.edits import Edit

router = APIRouter(prefix="/v1/specs", tags=["specs"])

Name = Annotated[str, Path(pattern=NAME_PATTERN)]
Version = Annotated[int, Path(ge=1, lt=2**31)]


class StatusChange(StrictDocument):
    """Activate a version (the latest, if none is given), or retire one (the active one)."""

    status: Literal[SpecStatus.ACTIVE, SpecStatus.RETIRED]
    version: int | None = Field(default=None, ge=1, lt=2**31)
    reason: str = Field(default="", max_length=1000)
    allow_failing_cases: bool = False


@router.post("/check")
def check_only(definition: SpecDefinition, service: Service) -> SpecCheckRecord:
    """Would this spec be accepted? Nothing is stored."""
    check_spec(definition, service.compile_spec)
    with service.database.read() as session:
        rival = specs.find_rival(session, definition)
        opened = opened_by_definition(session, definition)
        check_made_up(session, definition)
        check_derived_paths(definition, DERIVED_ATTRIBUTES.active(session))
    warnings = [f"spec {rival} is active for the same source and event type"] if rival else []
    warnings += [f"waits for a second person: {each}" for each in first_few(opened)]
    return SpecCheckRecord(warnings=warnings, cases=run_cases(definition))


@router.post("/protected-places")
def protected_places(definition: SpecDefinition, service: Service) -> ProtectedPlaceList:
    """Places in a spec's events whose values a version of any spec put at a path that is protected now. Nothing is stored."""
    check_spec(definition, service.compile_spec)
    with service.database.read() as session:
        places = InputPlaces(session, definition)
        sealed = [each for each in places.protected() if places.seals(each)]
        return ProtectedPlaceList(
            places=[list(each.keys) for each in sealed],
            unnamed=[list(each.keys) for each in sealed if places.unnamed(each)],
        )


class SpecPreview(StrictDocument):
    """A spec, and the payload of an event that it is tried on."""

    definition: SpecDefinition
    payload: dict[str, Any]


@router.post("/preview")
def preview(tried: SpecPreview, service: Service) -> PreviewRecord:
    """The output of a spec for one event, without values that policy protects. Nothing is stored."""
    check_spec(tried.definition, service.compile_spec)
    check_payload(tried.payload, "/payload")
    with service.database.read() as session:
        return preview_event(session, tried.definition, tried.payload)


class CaseWish(SpecPreview):
    """An event that a case is made of, and its name."""

    name: str = Field(min_length=1, max_length=100)


@router.post("/cases")
def new_case(wish: CaseWish, service: Service) -> SpecCase:
    """A test case of an event, with something made up for what not everybody sees and for what names somebody. Nothing is
    stored: put it among the `cases` of the spec."""
    check_spec(wish.definition, service.compile_spec)
    check_payload(wish.payload, "/payload")
    with service.database.read() as session:
        return make_case(session, wish.definition, wish.payload, wish.name)


class SpecMove(StrictDocument):
    """A spec that puts values at `path`, which belong at the path `into`."""

    definition: SpecDefinition
    path: str = Field(min_length=1, max_length=1024)
    into: str = Field(min_length=1, max_length=1024)


@router.post("/moves")
def move(wish: SpecMove, service: Service) -> SpecDefinition:
    """The spec with two operations more, which put at another path what it puts at one. Nothing is stored: preview it, and
    publish it."""
    check_spec(wish.definition, service.compile_spec)
    return moved(wish.definition, wish.path, wish.into)


class SampleEvents(StrictDocument):
    """Payloads of events of one source, and what the spec is to be called."""

    name: str = Field(pattern=NAME_PATTERN)
    source: str = Field(min_length=1, max_length=200)
    event_type: str = Field(default="*", min_length=1, max_length=200)
    events: list[dict[str, Any]] = Field(min_length=1, max_length=1000)


@router.post("/generate")
def generate(sample: SampleEvents, service: Service) -> SpecDraft:
    """A spec that maps events like these, each line with its reason and how sure it is. Nothing is stored, and no value of
    the sample is in the answer."""
    with service.database.read() as session:
        known = known_types(session)
        active = specs.active_specs(session)
    namespaces = {place.type: place.path for spec in active for place in spec.identifiers}
    sources = {spec.source for spec in active}
    draft = draft_spec(
        sample.name, sample.source, sample.event_type, sample.events, known, namespaces, sources
    )
    check_spec(draft.definition, service.compile_spec)
    return draft


completions_router = APIRouter(prefix="/v1/completions", tags=["specs"])


@completions_router.get("")
def complete(
    service: Service,
    kind: WordKind,
    q: Annotated[str, Query(max_length=1024, description="Beginning of the word.")] = "",
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> CompletionList:
    """Operations, functions with a line of help, or known attribute paths, that begin so."""
    with service.database.read() as session:
        return completions(session, kind, q, limit)


Nevertheless = Annotated[bool, Query(description="Publish it although a test case of it fails.")]


@router.put("/{name}", response_model=SpecRecord, responses=ASKED | created(SpecRecord))
def put(
    name: Name,
    definition: SpecDefinition,
    service: Service,
    caller: Acting,
    precondition: Precondition,
    reason: Reason = "",
    allow_failing_cases: Nevertheless = False,
) -> Response:
    """Store a new version; with status `active`, activate it too, if the role may and its test cases pass. The same
    again makes no new version. One that makes keys of values, or does more with a protected value than to copy it where
    it is protected as well, stays a draft until a second person approves it: 202."""
    if definition.name != name:
        raise RefusedRequestError("the name is not the one in the URL", "/name")
    if definition.status is not SpecStatus.DRAFT:
        require_right(caller, "POST", f"{router.prefix}/{name}/status")
    specs.check_new(definition, service.compile_spec)
    if definition.status is SpecStatus.ACTIVE:
        require_cases(definition, are_allowed_to_fail=allow_failing_cases)
        _look_ahead(service, definition)
    with service.database.write(caller.name, reason) as edit:
        check_made_up(edit.session, definition)
        check_derived_paths(definition, DERIVED_ATTRIBUTES.active(edit.session))
        version, is_new = specs.put_spec(edit, definition, _of_record(precondition))
        if definition.status is SpecStatus.ACTIVE and (waiting := _activate(edit, name, version)):
            return asked(waiting)
        record = specs.get_spec(edit.session, name)
    return json_answer(record.model_dump_json(), status=201 if is_new else 200)


def _look_ahead(service: Service, definition: SpecDefinition) -> None:
    """Follow the values of all versions before there is a writer: it is done once for each, and takes a second for
    hundreds."""
    with service.database.read() as session:
        opened_by_definition(session, definition)


def _activate(edit: Edit, name: str, version: int) -> PolicyChangeRecord | None:
    """Put a version in force, or ask a second person."""
    weakens = opened_by_spec(edit.session, name, version)
    if weakens:
        wanted = SpecActivation(name=name, version=version)
        return request_change(edit, "spec", name, in_force(edit.session, name), wanted, weakens)
    specs.put_in_force(edit, name, version)
    return None


def _check_leaving(edit: Edit, name: str, version: int | None) -> None:
    """Raises ClashError where the events of a spec that is to be retired would go to one that shows more of them."""
    known = in_force(edit.session, name)
    if known is None or version not in (None, known.version):
        return
    if opened := opened_by_leaving(edit.session, known):
        raise ClashError(
            f"without {name} another spec maps its events, and would show protected values: "
            f"{'; '.join(first_few(opened))}. Publish a version of {name} that does the same first: "
            "a second person approves it, and then it can be retired"
        )


@router.get("")
def list_(
    service: Service,
    paging: Paging,
    q: Annotated[str, Query(max_length=200, description="Words in the name or the source.")] = "",
    sort: Literal["name", "-name"] = "name",
) -> ListPage[SpecRecord]:
    """Specs by name, each with its latest version."""
    with service.database.read() as session:
        return specs.list_specs(session, paging, q, sort == "-name")


health_router = APIRouter(prefix="/v1/spec-health", tags=["specs"])


@health_router.get("")
def health(service: Service, paging: Paging) -> SpecHealthList:
    """The use of active specs by flows: events, errors, last use, and fields of the input that no spec reads."""
    with service.database.read() as session:
        return spec_health(session, paging)


@router.get("/{name}", response_model=SpecRecord)
def get(name: Name, service: Service, if_none_match: IfNoneMatch = None) -> Response:
    """One spec, with its latest version."""
    with service.database.read() as session:
        record = specs.get_spec(session, name)
    return json_answer(record.model_dump_json(), if_none_match)


@router.get("/{name}/versions")
def list_versions(name: Name, service: Service, paging: Paging) -> ListPage[VersionRecord[SpecDocument]]:
    """All versions of a spec, the newest first."""
    with service.database.read() as session:
        return SPECS.versions(session, paging, name)


@router.get("/{name}/versions/{version}", response_model=VersionRecord[SpecDocument])
def get_version(
    name: Name, version: Version, service: Service, if_none_match: IfNoneMatch = None
) -> Response:
    """One version of a spec."""
    with service.database.read() as session:
        record = SPECS.at(session, version, name)
    return json_answer(record.model_dump_json(), if_none_match)


@router.post("/{name}/status", response_model=SpecRecord, responses=ASKED)
def set_status(
    name: Name,
    change: StatusChange,
    service: Service,
    actor: Actor,
    precondition: Precondition,
) -> Response:
    """Activate or retire a version. At most one version of a name is active, and at most one spec of one exact pair of
    source and event type. An edit that waits (202) with `PUT` waits here too."""
    check = _of_record(precondition)
    checked = None
    if change.status is SpecStatus.ACTIVE:
        with service.database.read() as session:
            stored = specs.stored_version(session, name, change.version)
            check_derived_paths(stored, DERIVED_ATTRIBUTES.active(session))
        check_spec(stored, service.compile_spec)
        require_cases(stored, are_allowed_to_fail=change.allow_failing_cases)
        _look_ahead(service, stored)
        checked = stored.version
    with service.database.write(actor, change.reason) as edit:
        if checked is None:
            _check_leaving(edit, name, change.version)
            specs.retire_spec(edit, name, change.version, check)
        else:
            specs.check_activation(edit.session, name, change.version, checked, check)
            if waiting := _activate(edit, name, checked):
                return asked(waiting)
        record = specs.get_spec(edit.session, name)
    return json_answer(record.model_dump_json())


def _of_record(precondition: Precondition) -> specs.Precondition:
    return lambda known: precondition(None if known is None else known.model_dump_json())
