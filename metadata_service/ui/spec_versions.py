"""One spec with all its versions: what differs between two of them, and which one is in force."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from fastapi import APIRouter, Response

from idgraph.model.callers import Scope
from idgraph.model.errors import ProfileServiceError
from idgraph.model.specs import SpecStatus
from idgraph.web.conditional import etag_of, precondition
from idgraph.web.cursors import PageRequest
from idgraph.web.refusals import RefusedRequestError
from metadata_service.api.routes import specs as api
from metadata_service.attributes.policy_changes import pending_changes
from metadata_service.documents.writing import difference, spec_text
from metadata_service.specs import catalogue
from metadata_service.specs.catalogue import SPECS
from metadata_service.storage.versions import list_changes
from metadata_service.ui.page import FIRST, Number, OwnFields, OwnPage, Paging, SignedIn, reason_of, see_other
from metadata_service.ui.sources import missing_source
from metadata_service.ui.specs import LIST, Name

router = APIRouter()


@router.get(LIST + "/{name}")
def show(
    page: SignedIn,
    name: Name,
    paging: Paging,
    version: Number = None,
    against: Number = None,
    published: bool = False,
) -> Response:
    """One version (the one in force, if none is named), its difference to another (the one before), and all versions."""
    page.require("GET", f"/v1/specs/{name}")
    return _page(page, name, version, against=against, paging=paging, published=published)


def _page(
    page: OwnPage,
    name: str,
    version: int | None,
    status: int = 200,
    against: int | None = None,
    paging: PageRequest = FIRST,
    **context: Any,
) -> Response:
    with page.database.read() as reading:
        record = catalogue.get_spec(reading, name)
        number = version or record.active_version or record.latest_version
        shown = SPECS.at(reading, number, name)
        other = against or number - 1
        compared = catalogue.get_spec_version(reading, name, other) if other else None
        versions = SPECS.versions(reading, paging, name)
        waiting = pending_changes(reading, "spec", name)
        changes = list_changes(reading, PageRequest(None, 200), "spec", name).items
    text = spec_text(shown.document, "status")
    if context.get("published"):
        context["missing"] = missing_source(page, shown.document.source, shown.document.event_type)
        context["waiting_letters"] = _waiting_letters(page, shown.document.source)
    return page.render(
        "spec.html",
        status,
        record=record,
        shown=shown,
        versions=versions,
        waiting=waiting,
        changes=changes,
        text=text,
        other=other,
        difference=[] if compared is None else difference(spec_text(compared, "status"), text),
        etag=etag_of(record.model_dump_json()),
        **context,
    )


def _waiting_letters(page: OwnPage, source: str) -> int:
    """The number of dead letters of a source that may pass by a published spec; 0 if this person cannot know."""
    if "*" in source or not page.can_ask or Scope.OPERATE not in page.rights.scopes:
        return 0
    with suppress(ProfileServiceError):
        return int(page.ask("GET", "dead-letters", params={"source": source, "limit": 1})["matching"])
    return 0


@router.post(LIST + "/{name}/activate")
def activate(page: SignedIn, name: Name, fields: OwnFields) -> Response:
    """Put a version in force: a draft, or an older one again."""
    page.require("POST", f"/v1/specs/{name}/status")
    number = fields.get("version", "")
    if not number.isdecimal() or not 0 < int(number) < 2**31:
        raise RefusedRequestError("the form names no version")
    page.on_refusal(_page, name, int(number), reason=fields.get("reason", ""))
    change = api.StatusChange(
        status=SpecStatus.ACTIVE,
        version=int(number),
        reason=reason_of(fields, is_needed=True),
        allow_failing_cases="allow_failing_cases" in fields,
    )
    check = precondition(fields.get("etag", ""))
    answer = api.set_status(name, change, page.service, page.caller.name, check)
    return see_other(f"{LIST}/{name}", **({"published": "true"} if answer.status_code == 200 else {}))
