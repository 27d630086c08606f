"""What a draft of a mapping spec does to real events, before it is published: the profile service's preview, with its progress."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from idgraph.model.errors import ProfileServiceError, SpecError
from idgraph.model.records import SpecRecord
from idgraph.web.conditional import etag_of
from metadata_service.api.routes import specs as api
from metadata_service.api.service import Service
from metadata_service.documents.problems import DocumentError
from metadata_service.documents.writing import difference, spec_text
from metadata_service.specs import catalogue
from metadata_service.storage.sessions import Session
from metadata_service.ui.page import OwnFields, Polled, SignedIn, curl, may, render, require
from metadata_service.ui.profiles import profiles_client, profiles_rights
from metadata_service.ui.specs import LIST, Name, read_definition_of, show_editor

router = APIRouter()


@router.get(LIST + "/{name}/effect")
def of_version(
    request: Request,
    session: SignedIn,
    service: Service,
    name: Name,
    version: Annotated[int, Query(ge=1, lt=2**31)],
) -> Response:
    """A stored version, ready to be previewed."""
    require(session, "PUT", f"/v1/specs/{name}")
    with service.database.read() as reading:
        record = catalogue.get_spec(reading, name)
        document = catalogue.get_spec_version(reading, name, version).document
    return _page(request, session, service, record, {"text": spec_text(document, "status")}, {})


@router.post(LIST + "/{name}/effect")
def of_draft(
    request: Request, session: SignedIn, service: Service, name: Name, fields: OwnFields
) -> Response:
    """Run a preview of the draft, stop it, or look again, by `act`."""
    require(session, "PUT", f"/v1/specs/{name}")
    act, job = fields.get("act"), fields.get("job", "")
    with service.database.read() as reading:
        record = catalogue.get_spec(reading, name)
    try:
        definition, _ = read_definition_of(name, fields.get("text", ""))
        warnings = api.check_only(definition, service).warnings
    except (DocumentError, SpecError) as error:
        kept: dict[str, Any] = {each: fields.get(each, "") for each in ("reason", "sample")}
        return show_editor(request, session, record, fields.get("text", ""), 422, refusal=str(error), **kept)
    found: dict[str, Any] = {}
    try:
        with profiles_client(request, session) as client:
            if act == "stop":
                with suppress(ProfileServiceError):
                    client.call("POST", "jobs", job, "cancel", body={"reason": "stopped on its page"})
            if act in ("stop", "look"):
                found = _found(request, session, job)
            else:
                body: dict[str, Any] = {
                    "definition": definition.model_dump(mode="json"),
                    "reason": f"draft of {name}",
                }
                if act == "reveal":
                    body |= {"reveal": True, "reason": fields.get("reason", "")}
                found = client.call("POST", "specs", "previews", body=body)
    except ProfileServiceError as error:
        found = {"problem": str(error), "status": error.status}
    return _page(request, session, service, record, fields, found, definition.digest(), warnings)


@router.get(LIST + "/{name}/effect/{job}")
def progress(
    request: Request,
    session: Polled,
    service: Service,
    name: Name,
    job: str,
    draft: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """How far a preview is; asked while it runs."""
    require(session, "PUT", f"/v1/specs/{name}")
    with service.database.read() as reading:
        record = catalogue.get_spec(reading, name)
    try:
        found = _found(request, session, job)
    except ProfileServiceError as error:
        found = {"problem": str(error), "status": error.status}
    return render(
        request, "spec_effect_found.html", session, is_poll=True, **_shown(session, record, found, draft)
    )


def _found(request: Request, session: Session, job: str) -> dict[str, Any]:
    """Raises ProfileServiceError."""
    with profiles_client(request, session) as client:
        found: dict[str, Any] = client.call("GET", "specs", "previews", job)
        if found["state"] == "failed":
            found["problem"] = client.call("GET", "jobs", job).get("error") or "its process ended"
    return found


_NOTHING = dict.fromkeys(("id", "state", "done", "total", "problem", "status"))


def _shown(session: Session, record: SpecRecord, found: dict[str, Any], draft: str) -> dict[str, Any]:
    result = found.get("result") or {}
    is_stale = bool(result) and (result["definition"], result["version_in_force"]) != (
        draft,
        record.active_version,
    )
    is_done = found.get("state") == "done" and bool(result)
    return {
        "record": record,
        "found": _NOTHING | found,
        "result": result,
        "draft": draft,
        "is_stale": is_stale,
        "is_ready": is_done and not is_stale,
        "may_reveal": profiles_rights(session).may_reveal,
        "may_publish": may(session, "POST", f"/v1/specs/{record.name}/status"),
    }


def _page(
    request: Request,
    session: Session,
    service: Service,
    record: SpecRecord,
    fields: dict[str, str],
    found: dict[str, Any],
    draft: str = "",
    warnings: Sequence[str] = (),
) -> Response:
    before = ""
    if record.active_version is not None:
        with service.database.read() as reading:
            active = catalogue.get_spec_version(reading, record.name, record.active_version)
        before = spec_text(active.document, "status")
    source = request.app.state.profile_source
    job = found.get("id")
    return render(
        request,
        "spec_effect.html",
        session,
        title=f"Effect on {record.name}",
        is_rail=True,
        is_poll=False,
        warnings=warnings,
        text=fields["text"],
        etag=fields.get("etag") or etag_of(record.model_dump_json()),
        reason=fields.get("reason", ""),
        sample=fields.get("sample", ""),
        difference=difference(before, fields["text"]),
        curl=curl(source.url, f"/v1/specs/previews/{job}") if source is not None and job else None,
        **_shown(session, record, found, draft),
    )
