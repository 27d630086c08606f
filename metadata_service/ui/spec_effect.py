"""The effect of a draft of a mapping spec on real events, before it is published: the profile service's preview, with
its progress."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from idgraph.model.errors import ProfileServiceError, SpecError
from idgraph.model.specs import SpecDefinition
from idgraph.web.conditional import etag_of
from metadata_service.api.routes import specs as api
from metadata_service.documents.problems import DocumentError
from metadata_service.documents.writing import difference, spec_text
from metadata_service.specs import catalogue
from metadata_service.ui.page import OwnFields, OwnPage, Polled, SignedIn, Text
from metadata_service.ui.sources import missing_source
from metadata_service.ui.specs import KEPT, LIST, Name, read_definition_of, show_editor

router = APIRouter()

PREVIEWS = ("specs", "previews")


@router.get(LIST + "/{name}/effect")
def of_version(page: SignedIn, name: Name, version: Annotated[int, Query(ge=1, lt=2**31)]) -> Response:
    """A stored version, ready to be previewed."""
    page.require("PUT", f"/v1/specs/{name}")
    with page.database.read() as reading:
        document = catalogue.get_spec_version(reading, name, version)
    return _page(page, {"text": spec_text(document, "status")}, {}, document)


@router.post(LIST + "/{name}/effect")
def of_draft(page: SignedIn, name: Name, fields: OwnFields) -> Response:
    """Run a preview of the draft, stop it, or look again, by `act`."""
    page.require("PUT", f"/v1/specs/{name}")
    with page.database.read() as reading:
        catalogue.get_spec(reading, name)
    act, job, text = (fields.get(each, "") for each in ("act", "job", "text"))
    try:
        definition, _ = read_definition_of(name, text)
        warnings = api.check_only(definition, page.service).warnings
    except (DocumentError, SpecError) as error:
        kept: dict[str, Any] = {each: fields.get(each, "") for each in KEPT}
        return show_editor(page, name, text, 422, problem=str(error), **kept)
    if act == "stop":
        with suppress(ProfileServiceError):
            page.ask("POST", "jobs", job, "cancel", body={"reason": "stopped on its page"})
    if act in ("stop", "look"):
        found = page.preview("GET", *PREVIEWS, job)
    else:
        body: dict[str, Any] = {
            "definition": definition.model_dump(mode="json"),
            "reason": f"draft of {name}",
        }
        body |= {"reveal": True, "reason": fields.get("reason", "")} if act == "reveal" else {}
        found = page.preview("POST", *PREVIEWS, body=body)
    return _page(page, fields, found, definition, draft=definition.digest(), warnings=warnings)


@router.get(LIST + "/{name}/effect/{job}")
def progress(page: Polled, name: Name, job: str, draft: Text = "") -> Response:
    """The progress of a preview; the page asks while it runs."""
    page.require("PUT", f"/v1/specs/{name}")
    with page.database.read() as reading:
        record = catalogue.get_spec(reading, name)
    found = page.preview("GET", *PREVIEWS, job)
    return page.render("spec_effect_found.html", is_poll=True, record=record, found=found, draft=draft)


def _page(
    page: OwnPage, typed: dict[str, str], found: dict[str, Any], events: SpecDefinition, **context: Any
) -> Response:
    name = events.name
    before, is_away = "", bool(found) and found.get("status", 200) is None
    with page.database.read() as reading:
        record = catalogue.get_spec(reading, name)
        if record.active_version is not None:
            active = catalogue.get_spec_version(reading, name, record.active_version)
            before = spec_text(active, "status")
    return page.render(
        "spec_effect.html",
        record=record,
        found=found,
        typed=typed,
        missing=None if is_away else missing_source(page, events.source, events.event_type),
        etag=typed.get("etag") or etag_of(record.model_dump_json()),
        difference=difference(before, typed["text"]),
        **context,
    )
