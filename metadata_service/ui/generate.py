"""New spec and Generate Specs: a first draft that is empty, a copy, or made of sample events, each line with its reason."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import RedirectResponse

from idgraph.model.specs import IdentifierPlace, SpecDefinition, SpecStatus
from idgraph.web.conditional import precondition
from idgraph.web.cursors import PageRequest
from idgraph.web.refusals import PreconditionError
from metadata_service.api.routes import specs
from metadata_service.specs import catalogue
from metadata_service.specs.health import unmapped
from metadata_service.ui.page import OwnFields, OwnPage, SignedIn, Text, see_other
from metadata_service.ui.sources import missing_source
from metadata_service.ui.specs import LIST, read_events

router = APIRouter()

NEW = "/ui/specs-new"
PAGE = "/ui/generate"
CALL = "/v1/specs/generate"
FIELDS = ("name", "source", "event_type", "begin", "copied", "events")
MOST_COPIED = 1000


@router.get(PAGE)
def ask(page: SignedIn) -> Response:
    """The form."""
    page.require("POST", CALL)
    return _page(page, {"begin": "sample"})


@router.get(NEW)
def begin(page: SignedIn, source: Text = "") -> Response:
    """The form of a new spec; with a source that was chosen."""
    page.require("PUT", "/v1/specs/new")
    return _page(page, {"name": source, "source": source, "begin": "empty", "copied": ""})


def _page(page: OwnPage, typed: dict[str, str], status: int = 200, **context: Any) -> Response:
    context["typed"] = typed
    context["missing"] = missing_source(page, typed.get("source", ""), typed.get("event_type") or "*")
    if page.request.url.path != NEW or context.get("draft"):
        return page.render("generate.html", status, **context)
    with page.database.read() as reading:
        context["unmapped"] = unmapped(reading)
        context["known"] = catalogue.list_specs(reading, PageRequest(None, MOST_COPIED)).items
    return page.render("new_spec.html", status, **context)


@router.post(NEW)
@router.post(PAGE)
def save(page: SignedIn, fields: OwnFields) -> Response:
    """Show what a sample becomes; else save the draft and open it in the editor. The sample is stored nowhere."""
    typed = {field: fields.get(field, "").strip() for field in FIELDS}
    name, draft = typed["name"], None
    is_sample = typed["begin"] not in ("empty", "copy")
    page.require(*(("POST", CALL) if is_sample else ("PUT", f"/v1/specs/{name or 'new'}")))
    # The form lists specs: it is shown again to whoever may begin one.
    page.on_refusal(_page, typed)
    stated: dict[str, Any] = {each: typed[each] for each in ("name", "source")}
    stated["event_type"] = typed["event_type"] or "*"
    try:
        if not is_sample:
            definition = SpecDefinition.model_validate(_beginning(page, typed) | stated)
            reason = "begun"
        else:
            events = read_events(typed["events"])
            sample = specs.SampleEvents.model_validate(stated | {"events": events})
            draft = specs.generate(sample, page.service)
            if fields.get("act") != "draft":
                return _page(page, typed, draft=draft)
            page.require("PUT", f"/v1/specs/{name}")
            definition, reason = draft.definition, f"drafted from a sample of {len(sample.events)}"
        specs.put(name, definition, page.service, page.caller, precondition(None, "*"), reason)
    except PreconditionError:
        problem = "A spec has this name: give the draft another one."
        return _page(page, typed, 412, problem=problem, draft=draft)
    if draft is None:
        return see_other(f"{LIST}/{name}/edit", saved="true")
    # The form is sent on: the editor shows its first event as the sample.
    return RedirectResponse(f"{LIST}/{name}/edit", 307)


def _beginning(page: OwnPage, typed: dict[str, str]) -> dict[str, Any]:
    """The first text of a new spec: one line to go on from, or the text of another one. Raises UnknownSubjectError."""
    if typed["begin"] == "copy":
        with page.database.read() as reading:
            known = catalogue.get_spec(reading, typed["copied"])
            version = known.active_version or known.latest_version
            copied = catalogue.get_spec_version(reading, known.name, version)
        return copied.model_dump(exclude={"version", "created", "status"}) | {"status": SpecStatus.DRAFT}
    return {
        "operations": [{"operation": "jmespath", "spec": {"identity.customerId": "customerId"}}],
        "identifiers": [IdentifierPlace(type="customer_id", path="identity.customerId", primary=True)],
    }
