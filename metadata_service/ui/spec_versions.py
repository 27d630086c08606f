"""One spec with all its versions: what differs between two of them, and which one is in force."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from idgraph.model.errors import SpecError
from idgraph.model.records import ChangeRecord
from idgraph.model.specs import SpecDefinition, SpecStatus
from idgraph.web.conditional import etag_of, precondition
from idgraph.web.cursors import PageRequest
from idgraph.web.refusals import ClashError, PreconditionError, RefusedRequestError
from metadata_service.api.routes import specs as api
from metadata_service.api.service import MetadataService, Service
from metadata_service.attributes.policy_changes import pending_changes
from metadata_service.documents.writing import difference, spec_text
from metadata_service.specs import catalogue
from metadata_service.storage.edits import list_changes
from metadata_service.storage.sessions import Session
from metadata_service.ui.page import OwnFields, SignedIn, curl, may, render, require, see_other
from metadata_service.ui.specs import LIST, Name

router = APIRouter()

SHOWN = 50


@router.get(LIST + "/{name}")
def show(
    request: Request,
    session: SignedIn,
    service: Service,
    name: Name,
    version: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
    against: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
    cursor: Annotated[str | None, Query(max_length=10_000)] = None,
    published: bool = False,
) -> Response:
    """One version (the one in force, if none is named), its difference to another (the one before), and all versions."""
    require(session, "GET", f"/v1/specs/{name}")
    return _page(request, session, service, name, version, against, cursor, published=published)


def _page(
    request: Request,
    session: Session,
    service: MetadataService,
    name: str,
    version: int | None = None,
    against: int | None = None,
    cursor: str | None = None,
    status: int = 200,
    **context: Any,
) -> Response:
    with service.database.read() as reading:
        record = catalogue.get_spec(reading, name)
        number = version or record.active_version or record.latest_version
        shown = catalogue.get_spec_version(reading, name, number)
        other = against or number - 1
        compared = catalogue.get_spec_version(reading, name, other).document if other else None
        versions = catalogue.spec_versions(reading, name, PageRequest(cursor, SHOWN))
        waiting = pending_changes(reading, "spec", name)
        changes = list_changes(reading, PageRequest(None, 4 * SHOWN), "spec", name).items
    decided: dict[int, list[ChangeRecord]] = {}
    for change in changes:
        if change.action == "activated" and change.subject_version:
            decided.setdefault(change.subject_version, []).append(change)
    return render(
        request,
        "spec.html",
        session,
        status,
        title=name,
        record=record,
        shown=shown,
        versions=versions,
        waiting=waiting,
        decided=decided,
        text=spec_text(shown.document, "status"),
        other=other,
        difference=[] if compared is None else difference(*map(_without_status, (compared, shown.document))),
        etag=etag_of(record.model_dump_json()),
        may_edit=may(session, "PUT", f"/v1/specs/{name}"),
        may_publish=may(session, "POST", f"/v1/specs/{name}/status"),
        curl=curl(str(request.base_url), f"/v1/specs/{name}/versions/{number}"),
        **{"published": False, "refusal": None, "reason": ""} | context,
    )


def _without_status(document: SpecDefinition) -> str:
    return spec_text(document, "status")


@router.post(LIST + "/{name}/activate")
def activate(
    request: Request, session: SignedIn, service: Service, name: Name, fields: OwnFields
) -> Response:
    """Put a version in force: a draft, or an older one again."""
    require(session, "POST", f"/v1/specs/{name}/status")
    number, reason = fields.get("version", ""), fields.get("reason", "").strip()
    if not number.isdecimal() or not 0 < int(number) < 2**31:
        raise RefusedRequestError("the form names no version")
    version = int(number)

    def refused(problem: str, status: int) -> Response:
        return _page(request, session, service, name, version, status=status, refusal=problem, reason=reason)

    if not reason:
        return refused("Say why: the reason is kept with the version, for whoever asks later.", 422)
    is_allowed = "allow_failing_cases" in fields
    change = api.StatusChange(
        status=SpecStatus.ACTIVE, version=version, reason=reason[:1000], allow_failing_cases=is_allowed
    )
    try:
        answer = api.set_status(
            name, change, service, session.caller.name, precondition(fields.get("etag", ""))
        )
    except ClashError as error:
        return refused(str(error), 409)
    except SpecError as error:
        return refused(str(error), 422)
    except PreconditionError:
        return refused("Somebody saved or published meanwhile. Look at the versions, then decide again.", 412)
    return see_other(f"{LIST}/{name}", **({"published": "true"} if answer.status_code == 200 else {}))
