"""Edits that weaken protection: one person requests each, another approves or refuses it.

An edit weakens protection if an attribute of the catalogue is less protected after it, inherited protection
included, or needs a lower clearance; if a decided classification falls; if a spec makes keys of values, or
does more with a protected value than to copy it where it is protected as well (`specs/approval.py`); if a
protected attribute may be an identifier from now on; and if a new attribute is less protected than a person
decided for all below one above it. Protection by a detector's proposal alone counts as none, since no person
decided on it.

A request changes nothing that pipelines see. It is approved against the state at the request: after another
edit of the same subject, or if it would open more by now, it must be requested again.
"""

from __future__ import annotations

import json
from typing import Literal, cast

from pydantic import BaseModel
from sqlalchemy.orm import Session

from idgraph.model.attributes import AttributeDefinition, AttributeMetadata
from idgraph.model.errors import first_few
from idgraph.model.records import PolicyChangeRecord, ProvenanceRecord
from idgraph.web.conditional import etag_of
from idgraph.web.cursors import ListPage, PageRequest
from idgraph.web.refusals import ClashError, UnknownSubjectError
from metadata_service.attributes import redaction
from metadata_service.kinds import KINDS
from metadata_service.storage.edits import Edit, Kind
from metadata_service.storage.requests import (
    GRANTS,
    KeptRequest,
    add_step,
    find_requests,
    keep,
    require_second_person,
    require_undecided,
)
from metadata_service.storage.tables import RequestRow

Status = Literal["pending", "approved", "refused"]
_POLICIES = RequestRow.kind.not_in(GRANTS)


def request_change(
    edit: Edit, kind: Kind, subject: str, before: BaseModel | None, wanted: BaseModel, weakens: list[str]
) -> PolicyChangeRecord:
    """Keep an edit until a second person decides; one that waits already is given back as it is."""
    asked = (kind, _base(before), _definition(wanted), json.dumps(weakens))
    for known in find_requests(edit.session, _POLICIES, RequestRow.subject == subject, state="waits"):
        if (known.row.kind, known.row.base, known.row.document, known.row.weakens) == asked:
            return _record(known)
    return get_policy_change(edit.session, keep(edit, kind, subject, asked[2], asked[1], weakens))


def list_policy_changes(
    session: Session, wanted: PageRequest, status: Status | None = None
) -> ListPage[PolicyChangeRecord]:
    """The newest first; of one status, if asked."""
    state = "waits" if status == "pending" else status
    found = map(_record, find_requests(session, _POLICIES, wanted=wanted, state=state))
    return wanted.page(found, lambda change: change.id)


def pending_changes(session: Session, kind: Kind, subject: str) -> list[PolicyChangeRecord]:
    """Changes of one subject that wait for a decision, the newest first."""
    of = (RequestRow.kind == kind, RequestRow.subject == subject)
    return [_record(each) for each in reversed(find_requests(session, *of, state="waits"))]


def get_policy_change(session: Session, change_id: int) -> PolicyChangeRecord:
    """Raises UnknownSubjectError."""
    return _record(_find(session, change_id))


def approve(edit: Edit, change_id: int) -> PolicyChangeRecord:
    """Carry a change out. Raises UnknownSubjectError, ClashError when it was decided already or does not fit
    any more, SamePersonError when this person asked for it."""
    found = _undecided(edit, change_id)
    require_second_person(edit, found, "change")
    row = found.row

    def differs(known: BaseModel | None, opens: list[str]) -> None:
        _check_base(row, known)
        _check_shown(row, opens)

    if row.kind == redaction.KIND:
        redaction.redact(edit, row)
    else:
        KINDS[row.kind].carry_out(edit, row.document, differs)
    return _decide(edit, found, "approved")


def refuse(edit: Edit, change_id: int) -> PolicyChangeRecord:
    """Let a change be; who asked for it may take it back so. Raises UnknownSubjectError, ClashError when it
    was decided already."""
    return _decide(edit, _undecided(edit, change_id), "refused")


def _undecided(edit: Edit, change_id: int) -> KeptRequest:
    found = _find(edit.session, change_id)
    require_undecided(found, edit.at, "change")
    return found


def _decide(edit: Edit, found: KeptRequest, decision: Literal["approved", "refused"]) -> PolicyChangeRecord:
    add_step(edit, found, decision)
    return get_policy_change(edit.session, found.row.id)


def _check_base(row: RequestRow, now: BaseModel | None) -> None:
    if _base(now) != row.base:
        raise ClashError(f"the document of change {row.id} was edited since; refuse it and ask again")


def _check_shown(row: RequestRow, opens: list[str]) -> None:
    # Attributes that inherit from this one may be new, or decided on again, since it was asked for.
    unseen = set(opens).difference(json.loads(row.weakens))
    if unseen:
        raise ClashError(
            f"change {row.id} would open more by now than it reports ({', '.join(first_few(sorted(unseen)))}); "
            "refuse it and ask again"
        )


def _base(before: BaseModel | None) -> str:
    return "" if before is None else etag_of(_definition(before))


def _definition(document: BaseModel) -> str:
    # Fields that events changed since do not count: only decisions of people do.
    fields = set(AttributeDefinition.model_fields) if isinstance(document, AttributeMetadata) else None
    return document.model_dump_json(include=fields)


def _find(session: Session, change_id: int) -> KeptRequest:
    for found in find_requests(session, _POLICIES, RequestRow.id == change_id):
        return found
    raise UnknownSubjectError("there is no policy change of this number")


def _record(found: KeptRequest) -> PolicyChangeRecord:
    row, decided = found.row, found.steps[-1] if found.steps else None
    return PolicyChangeRecord(
        id=row.id,
        kind=row.kind,
        subject=row.subject,
        status="pending" if decided is None else cast(Status, decided[0].action),
        weakens=json.loads(row.weakens),
        document=found.document,
        requested=ProvenanceRecord(**found.asked.provenance()),
        decided=None if decided is None else ProvenanceRecord(**decided[1].provenance()),
    )
