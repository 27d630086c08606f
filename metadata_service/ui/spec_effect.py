"""What a draft of a mapping spec does to real events, before it is published: the profile service's preview, with its progress."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from idgraph.model.errors import ProfileServiceError, SpecError
from idgraph.model.records import SpecRecord
from idgraph.web.conditional import etag_of
from metadata_service.api.routes import specs as api
from metadata_service.documents.problems import DocumentError
from metadata_service.documents.writing import difference, spec_text
from metadata_service.specs import catalogue
from metadata_service.ui.page import OwnFields, OwnPage, Polled, SignedIn, Text
from metadata_service.ui.specs import LIST, Name, read_definition_of, record_of, show_editor

router = APIRouter()

PREVIEWS = ("specs", "previews")


@router.get(LIST + "/{name}/effect")
def of_version(page: SignedIn, name: Name, version: Annotated[int, Query(ge=1, lt=2**31)]) -> Response:
    """A stored version, ready to be previewed."""
    page.require("PUT", f"/v1/specs/{name}")
    with page.database.read() as reading:
        document = catalogue.get_spec_version(reading, name, version).document
    return _page(page, record_of(page, name), {"text": spec_text(document, "status")}, {})


@router.post(LIST + "/{name}/effect")
def of_draft(page: SignedIn, name: Name, fields: OwnFields) -> Response:
    """Run a preview of the draft, stop it, or look again, by `act`."""
    page.require("PUT", f"/v1/specs/{name}")
    act, job, text = (fields.get(each, "") for each in ("act", "job", "text"))
    record = record_of(page, name)
    try:
        definition, _ = read_definition_of(name, text)
        warnings = api.check_only(definition, page.service).warnings
    except (DocumentError, SpecError) as error:
        kept: dict[str, Any] = {each: fields.get(each, "") for each in ("reason", "sample", "etag")}
        return show_editor(page, record, text, 422, problem=str(error), **kept)
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
    return _page(page, record, fields, found, definition.digest(), warnings)


@router.get(LIST + "/{name}/effect/{job}")
def progress(page: Polled, name: Name, job: str, draft: Text = "") -> Response:
    """How far a preview is; asked while it runs."""
    page.require("PUT", f"/v1/specs/{name}")
    shown = _shown(page, record_of(page, name), page.preview("GET", *PREVIEWS, job), draft)
    return page.render("spec_effect_found.html", is_poll=True, **shown)


def _shown(page: OwnPage, record: SpecRecord, found: dict[str, Any], draft: str) -> dict[str, Any]:
    result = found.get("result") or {}
    seen = (draft, record.active_version)
    is_stale = bool(result) and (result["definition"], result["version_in_force"]) != seen
    return {
        "record": record,
        "found": found,
        "result": result,
        "draft": draft,
        "is_stale": is_stale,
        "is_ready": found.get("state") == "done" and bool(result) and not is_stale,
        "may_reveal": page.rights.may_reveal,
        "may_publish": page.may("POST", f"/v1/specs/{record.name}/status"),
    }


def _page(
    page: OwnPage,
    record: SpecRecord,
    fields: dict[str, str],
    found: dict[str, Any],
    draft: str = "",
    warnings: Sequence[str] = (),
) -> Response:
    before = ""
    if record.active_version is not None:
        with page.database.read() as reading:
            active = catalogue.get_spec_version(reading, record.name, record.active_version)
        before = spec_text(active.document, "status")
    job = found.get("id")
    return page.render(
        "spec_effect.html",
        title=f"Effect on {record.name}",
        is_rail=True,
        warnings=warnings,
        text=fields["text"],
        etag=fields.get("etag") or etag_of(record.model_dump_json()),
        reason=fields.get("reason", ""),
        sample=fields.get("sample", ""),
        difference=difference(before, fields["text"]),
        curl=page.curl_profiles(f"/v1/specs/previews/{job}") if job else None,
        **_shown(page, record, found, draft),
    )
