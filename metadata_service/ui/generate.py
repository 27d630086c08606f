"""New spec and Generate Specs: a first draft that is empty, a copy, or made of sample events, each line with its reason."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import RedirectResponse
from pydantic import ValidationError

from idgraph.model.errors import SpecError
from idgraph.model.specs import IdentifierPlace, SpecDefinition, SpecStatus
from idgraph.web.conditional import precondition
from idgraph.web.cursors import PageRequest
from idgraph.web.refusals import PreconditionError, RefusedRequestError, UnknownSubjectError
from metadata_service.api.routes import drafts, specs
from metadata_service.api.service import MetadataService, Service
from metadata_service.documents.problems import model_problems
from metadata_service.drafting.draft import SpecDraft
from metadata_service.specs import catalogue
from metadata_service.specs.health import unmapped
from metadata_service.storage.sessions import Session
from metadata_service.ui.page import OwnFields, SignedIn, curl, may, render, require, see_other
from metadata_service.ui.specs import LIST, read_events

router = APIRouter()

NEW = "/ui/specs-new"
PAGE = "/ui/generate"
CALL = "/v1/specs/generate"
FIELDS = ("name", "source", "event_type", "begin", "copied", "events")
MOST_COPIED = 1000


@router.get(PAGE)
def ask(request: Request, session: SignedIn, service: Service) -> Response:
    """The form."""
    require(session, "POST", CALL)
    return _page(request, session, service, {"begin": "sample"})


@router.get(NEW)
def begin(
    request: Request,
    session: SignedIn,
    service: Service,
    source: Annotated[str, Query(max_length=200)] = "",
    copied: Annotated[str, Query(max_length=100)] = "",
) -> Response:
    """The form of a new spec; with a source that was chosen, or the spec that is copied."""
    require(session, "PUT", "/v1/specs/new")
    typed = {"name": source, "source": source, "begin": "copy" if copied else "empty", "copied": copied}
    return _page(request, session, service, typed)


def _page(
    request: Request,
    session: Session,
    service: MetadataService,
    typed: dict[str, str],
    status: int = 200,
    problem: str | None = None,
    draft: SpecDraft | None = None,
) -> Response:
    is_new = request.url.path == NEW and draft is None
    call = curl(str(request.base_url), CALL) + " -H 'Content-Type: application/json' -d @sample.json"
    context: dict[str, Any] = {
        "title": "New spec" if is_new else "Generate Specs",
        "typed": dict.fromkeys(FIELDS, "") | typed,
        "problem": problem,
        "draft": draft,
        "may_save": may(session, "PUT", f"/v1/specs/{typed.get('name') or 'new'}"),
        "curl": None if is_new else call,
    }
    if is_new:
        with service.database.read() as reading:
            context["unmapped"] = unmapped(reading)
            known = catalogue.list_specs(reading, PageRequest(None, MOST_COPIED)).items
        context |= {"known": known, "sources": sorted({each.document.source for each in known})}
    return render(request, "new_spec.html" if is_new else "generate.html", session, status, **context)


@router.post(NEW)
@router.post(PAGE)
def save(request: Request, session: SignedIn, service: Service, fields: OwnFields) -> Response:
    """Show what a sample becomes; else save the draft and open it in the editor. The sample is stored nowhere."""
    typed = {field: fields.get(field, "").strip() for field in FIELDS}
    name, draft = typed["name"], None
    stated: dict[str, Any] = {each: typed[each] for each in ("name", "source")}
    stated["event_type"] = typed["event_type"] or "*"
    model: type[drafts.SampleEvents] | type[SpecDefinition] = SpecDefinition
    try:
        if typed["begin"] in ("empty", "copy"):
            require(session, "PUT", f"/v1/specs/{name or 'new'}")
            stated = _beginning(service, typed) | stated
            definition, reason = SpecDefinition.model_validate(stated), "begun"
        else:
            require(session, "POST", CALL)
            model, stated["events"] = drafts.SampleEvents, read_events(typed["events"])
            sample = drafts.SampleEvents.model_validate(stated)
            draft = drafts.generate(sample, service)
            if fields.get("act") != "draft":
                return _page(request, session, service, typed, draft=draft)
            require(session, "PUT", f"/v1/specs/{name}")
            definition, reason = draft.definition, f"drafted from {len(sample.events)} sample events"
        specs.put(name, definition, service, session.caller, precondition(None, "*"), reason)
    except ValidationError as error:
        found = model_problems(error, stated, model)
        problem = "; ".join(f"{each.pointer.lstrip('/')}: {each.message}" for each in found)
        return _page(request, session, service, typed, 422, problem)
    except (SpecError, RefusedRequestError, UnknownSubjectError) as error:
        return _page(request, session, service, typed, 422, str(error))
    except PreconditionError:
        problem = "A spec has this name: give the draft another one."
        return _page(request, session, service, typed, 412, problem, draft)
    if draft is None:
        return see_other(f"{LIST}/{name}/edit", saved="true")
    # The form is sent on: the editor shows its first event as the sample.
    return RedirectResponse(f"{LIST}/{name}/edit", 307)


def _beginning(service: MetadataService, typed: dict[str, str]) -> dict[str, Any]:
    """What a new spec says at first: one line to go on from, or what another one says. Raises UnknownSubjectError."""
    if typed["begin"] == "copy":
        with service.database.read() as reading:
            known = catalogue.get_spec(reading, typed["copied"])
            version = known.active_version or known.latest_version
            copied = catalogue.get_spec_version(reading, known.name, version).document
        return copied.model_dump(exclude={"version", "created", "status"}) | {"status": SpecStatus.DRAFT}
    return {
        "operations": [{"operation": "jmespath", "spec": {"identity.customerId": "customerId"}}],
        "identifiers": [IdentifierPlace(type="customer_id", path="identity.customerId", primary=True)],
    }
