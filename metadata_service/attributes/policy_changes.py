"""Edits that weaken protection: one person requests each, another approves or refuses it.

An edit weakens protection if an attribute of the catalogue is less protected after it, inherited protection included,
or needs a lower clearance; if a decided classification falls; if a spec makes keys of values, or does more with a
protected value than to copy it where it is protected as well (`specs/approval.py`); if a protected attribute may be an
identifier from now on; and if a new attribute is less protected than a person decided for all below one above it.
Protection by a detector's proposal alone counts as none, since no person decided on it.

A request changes nothing that pipelines see. It is approved against the state at the request: after another edit of
the same subject, or if it would open more by now, it must be requested again.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any, Literal, cast

from pydantic import BaseModel
from sqlalchemy.orm import Session

from idgraph.model import paths
from idgraph.model.attributes import AttributeDefinition, AttributeMetadata, AttributeStatus
from idgraph.model.classification import EncryptionLevel
from idgraph.model.errors import first_few
from idgraph.model.records import PolicyChangeRecord, ProvenanceRecord
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot
from idgraph.web.conditional import etag_of
from idgraph.web.cursors import ListPage, PageRequest
from idgraph.web.refusals import ClashError, UnknownSubjectError
from metadata_service.attributes import redaction
from metadata_service.attributes.catalogue import (
    PlannedAttribute,
    carry_out,
    find_attributes,
    find_within,
    plan_attribute,
)
from metadata_service.attributes.rules import (
    DEFAULTS,
    LEVELS,
    discovery_defaults,
    knows_any,
    less_encrypted,
    weaker,
)
from metadata_service.specs import approval
from metadata_service.specs.catalogue import put_in_force
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
from metadata_service.storage.versions import VersionedDocuments
from transforms.schema.diff import AttributeTree


def opened_by_attribute(session: Session, planned: PlannedAttribute) -> list[str]:
    """The paths that an attribute's edit opens, each as `path: from to`; empty if nothing."""
    path = planned.after.path
    above = list(find_attributes(session, paths.ancestors(path)))
    below = list(find_within(session, path))
    defaults = discovery_defaults(session)
    around = [_decided(each, defaults) for each in (*above, *below)]
    before = [_decided(planned.before, defaults)] if planned.before is not None else []
    old, new = _tree([*around, *before], defaults), _tree([*around, planned.after], defaults)
    opened = [
        opens
        for each in sorted(each.path for each in (*around, *before))
        for opens in weaker(each, old.policy(each), new.policy(each))
    ]
    if not before and any(_decided(each, defaults).is_protected for each in above):
        # Of a new path the protection of those above is at stake, before its first value.
        opened += less_encrypted(path, old.policy(path).encryption, new.policy(path).encryption)
    if not before and planned.after.authorization_level < defaults.authorization_level and knows_any(session):
        # Purged and over the cap are unknown too, and what is stored of them has the level of the defaults.
        level = planned.after.authorization_level
        opened.append(f"{path}: authorization level {defaults.authorization_level} to {level}")
    known = planned.before
    if known is not None and known.status is not AttributeStatus.DISCOVERED:
        was, becomes = known.classification, planned.after.classification
        opened += [f"{path}: {was} to {becomes}"] if becomes.sensitivity < was.sensitivity else []
    if (
        before
        and before[0].encryption is EncryptionLevel.PROTECTED
        and planned.after.encryption is EncryptionLevel.PROTECTED
        and planned.after.identifiable > before[0].identifiable
    ):
        opened.append(f"{path}: may be made an identifier, whose keyed hash tells equal values")
    return opened


def _decided(attribute: AttributeMetadata, defaults: DiscoveryDefaults) -> AttributeMetadata:
    """Without what only a detector's proposal protects: as it would have been discovered without one."""
    if not attribute.sealed_for_review:
        return attribute
    level = defaults.authorization_level
    return attribute.model_copy(update={"encryption": EncryptionLevel.NONE, "authorization_level": level})


def _tree(attributes: Iterable[AttributeMetadata], defaults: DiscoveryDefaults) -> AttributeTree:
    return AttributeTree(MetadataSnapshot(version=0, attributes=tuple(attributes), defaults=defaults))


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
    """What waits for a decision on one subject, the newest first."""
    of = (RequestRow.kind == kind, RequestRow.subject == subject)
    return [_record(each) for each in reversed(find_requests(session, *of, state="waits"))]


def get_policy_change(session: Session, change_id: int) -> PolicyChangeRecord:
    """Raises UnknownSubjectError."""
    return _record(_find(session, change_id))


def approve(edit: Edit, change_id: int) -> PolicyChangeRecord:
    """Carry a change out. Raises UnknownSubjectError, ClashError when it was decided already or does not fit any
    more, SamePersonError when this person asked for it."""
    found = _undecided(edit, change_id)
    require_second_person(edit, found, "change")
    _CARRY_OUT[found.row.kind](edit, found.row)
    return _decide(edit, found, "approved")


def refuse(edit: Edit, change_id: int) -> PolicyChangeRecord:
    """Let a change be; who asked for it may take it back so. Raises UnknownSubjectError, ClashError when it was
    decided already."""
    return _decide(edit, _undecided(edit, change_id), "refused")


def _undecided(edit: Edit, change_id: int) -> KeptRequest:
    found = _find(edit.session, change_id)
    require_undecided(found, edit.at, "change")
    return found


def _decide(edit: Edit, found: KeptRequest, decision: Literal["approved", "refused"]) -> PolicyChangeRecord:
    add_step(edit, found, decision)
    return get_policy_change(edit.session, found.row.id)


def _attribute(edit: Edit, row: RequestRow) -> None:
    definition = AttributeDefinition.model_validate_json(row.document)
    planned = plan_attribute(edit, definition, lambda _: None)
    _check_base(row, planned.before)
    _check_shown(row, opened_by_attribute(edit.session, planned))
    carry_out(edit, planned)


def _documents(kind: VersionedDocuments[Any, Any]) -> Callable[[Edit, RequestRow], None]:
    def carry_out(edit: Edit, row: RequestRow) -> None:
        known = kind.held(edit.session, row.subject)
        _check_base(row, None if known is None else known.document)
        kind.save(edit, kind.stored.model_validate_json(row.document))

    return carry_out


def _spec(edit: Edit, row: RequestRow) -> None:
    wanted = approval.SpecActivation.model_validate_json(row.document)
    _check_base(row, approval.in_force(edit.session, wanted.name))
    _check_shown(row, approval.opened_by_spec(edit.session, wanted.name, wanted.version))
    put_in_force(edit, wanted.name, wanted.version)


_CARRY_OUT: dict[str, Callable[[Edit, RequestRow], None]] = {
    "attribute": _attribute,
    "spec": _spec,
    DEFAULTS.kind: _documents(DEFAULTS),
    LEVELS.kind: _documents(LEVELS),
    redaction.KIND: redaction.redact,
}


def _check_base(row: RequestRow, now: BaseModel | None) -> None:
    if _base(now) != row.base:
        raise ClashError(f"the document of change {row.id} was edited since; refuse the change and ask again")


def _check_shown(row: RequestRow, opens: list[str]) -> None:
    # Attributes that inherit from this one may be new, or decided on again, since it was asked for.
    unseen = set(opens).difference(json.loads(row.weakens))
    if unseen:
        raise ClashError(
            f"change {row.id} would open by now what it does not report ({', '.join(first_few(sorted(unseen)))}); "
            "refuse it and ask again"
        )


def _base(before: BaseModel | None) -> str:
    return "" if before is None else etag_of(_definition(before))


def _definition(document: BaseModel) -> str:
    # What events showed since does not count: only what people decide.
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
