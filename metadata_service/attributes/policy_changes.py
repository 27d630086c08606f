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
from sqlalchemy import Select, select
from sqlalchemy.orm import Session, aliased

from idgraph.model import paths
from idgraph.model.attributes import AttributeDefinition, AttributeMetadata, AttributeStatus
from idgraph.model.classification import EncryptionLevel
from idgraph.model.errors import first_few
from idgraph.model.records import PolicyChangeRecord, ProvenanceRecord
from idgraph.model.snapshots import DiscoveryDefaults, MetadataSnapshot
from idgraph.web.conditional import etag_of
from idgraph.web.cursors import ListPage, PageRequest
from idgraph.web.refusals import ClashError, SamePersonError, UnknownSubjectError
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
from metadata_service.storage.tables import PolicyChangeRow, PolicyDecisionRow, SnapshotRow
from metadata_service.storage.tokens import person_of
from metadata_service.storage.users import are_one_person
from metadata_service.storage.versions import VersionedDocuments, paged
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

_Found = tuple[PolicyChangeRow, SnapshotRow, PolicyDecisionRow | None, SnapshotRow | None]


def request_change(
    edit: Edit, kind: Kind, subject: str, before: BaseModel | None, wanted: BaseModel, weakens: list[str]
) -> PolicyChangeRecord:
    """Keep an edit until a second person decides; one that waits already is given back as it is."""
    asked = (kind, _base(before), _definition(wanted), json.dumps(weakens))
    for waiting in edit.session.execute(_changes("pending").where(PolicyChangeRow.subject == subject)):
        known: PolicyChangeRow = waiting[0]
        if (known.kind, known.base, known.document, known.weakens) == asked:
            return _record(cast(_Found, waiting))
    _, base, document, losses = asked
    row = PolicyChangeRow(
        snapshot_version=edit.version,
        kind=kind,
        subject=subject,
        base=base,
        document=document,
        weakens=losses,
    )
    edit.session.add(row)
    edit.record(kind, subject, None, "requested")
    edit.session.flush()
    return get_policy_change(edit.session, row.id)


def list_policy_changes(
    session: Session, wanted: PageRequest, status: Status | None = None
) -> ListPage[PolicyChangeRecord]:
    """The newest first; of one status, if asked."""
    query = paged(_changes(status), PolicyChangeRow.id, wanted, is_reversed=True)
    found = (_record(cast(_Found, row)) for row in session.execute(query))
    return wanted.page(found, lambda change: change.id)


def pending_changes(session: Session, kind: Kind, subject: str) -> list[PolicyChangeRecord]:
    """What waits for a decision on one subject, the newest first."""
    query = _changes("pending").where(PolicyChangeRow.kind == kind, PolicyChangeRow.subject == subject)
    return [_record(cast(_Found, row)) for row in session.execute(query.order_by(PolicyChangeRow.id.desc()))]


def get_policy_change(session: Session, change_id: int) -> PolicyChangeRecord:
    """Raises UnknownSubjectError."""
    return _record(_find(session, change_id))


def approval_problem(session: Session, asked_by: str, actor: str) -> str | None:
    """Why somebody cannot approve what somebody asked for, or None."""
    if person_of(asked_by) == person_of(actor):
        return "was asked for by the same person; a second person approves it"
    if are_one_person(session, asked_by, actor):
        return (
            f"was asked for by {person_of(asked_by)}, who counts as the same person as you: one of you made the account of the "
            "other, or a third one made both. Once another person has confirmed the account that was made, by POST "
            "/v1/users/NAME/confirm, the page Users or `idgraph users confirm NAME`, you are a second person"
        )
    return None


def approve(edit: Edit, change_id: int) -> PolicyChangeRecord:
    """Carry a change out. Raises UnknownSubjectError, ClashError when it was decided already or does not fit any
    more, SamePersonError when this person asked for it."""
    row, requested = _undecided(edit.session, change_id)
    if problem := approval_problem(edit.session, requested.actor, edit.actor):
        raise SamePersonError(f"change {change_id} {problem}")
    _CARRY_OUT[row.kind](edit, row)
    return _decide(edit, row, "approved")


def refuse(edit: Edit, change_id: int) -> PolicyChangeRecord:
    """Let a change be; who asked for it may take it back so. Raises UnknownSubjectError, ClashError when it was
    decided already."""
    row, _ = _undecided(edit.session, change_id)
    return _decide(edit, row, "refused")


def _decide(edit: Edit, row: PolicyChangeRow, decision: Literal["approved", "refused"]) -> PolicyChangeRecord:
    edit.session.add(PolicyDecisionRow(change_id=row.id, snapshot_version=edit.version, decision=decision))
    edit.record(cast(Kind, row.kind), row.subject, None, decision)
    edit.session.flush()
    return get_policy_change(edit.session, row.id)


def _attribute(edit: Edit, row: PolicyChangeRow) -> None:
    definition = AttributeDefinition.model_validate_json(row.document)
    planned = plan_attribute(edit, definition, lambda _: None)
    _check_base(row, planned.before)
    _check_shown(row, opened_by_attribute(edit.session, planned))
    carry_out(edit, planned)


def _documents(kind: VersionedDocuments[Any, Any]) -> Callable[[Edit, PolicyChangeRow], None]:
    def carry_out(edit: Edit, row: PolicyChangeRow) -> None:
        known = kind.held(edit.session, row.subject)
        _check_base(row, None if known is None else known.document)
        kind.save(edit, kind.stored.model_validate_json(row.document))

    return carry_out


def _spec(edit: Edit, row: PolicyChangeRow) -> None:
    wanted = approval.SpecActivation.model_validate_json(row.document)
    _check_base(row, approval.in_force(edit.session, wanted.name))
    _check_shown(row, approval.opened_by_spec(edit.session, wanted.name, wanted.version))
    put_in_force(edit, wanted.name, wanted.version)


_CARRY_OUT: dict[str, Callable[[Edit, PolicyChangeRow], None]] = {
    "attribute": _attribute,
    "spec": _spec,
    DEFAULTS.kind: _documents(DEFAULTS),
    LEVELS.kind: _documents(LEVELS),
    redaction.KIND: redaction.redact,
}


def _check_base(row: PolicyChangeRow, now: BaseModel | None) -> None:
    if _base(now) != row.base:
        raise ClashError(f"the document of change {row.id} was edited since; refuse the change and ask again")


def _check_shown(row: PolicyChangeRow, opens: list[str]) -> None:
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


def _undecided(session: Session, change_id: int) -> tuple[PolicyChangeRow, SnapshotRow]:
    row, requested, decision, _ = _find(session, change_id)
    if decision is not None:
        raise ClashError(f"change {change_id} was {decision.decision} already")
    return row, requested


def _find(session: Session, change_id: int) -> _Found:
    found = session.execute(_changes(None).where(PolicyChangeRow.id == change_id)).one_or_none()
    if found is None:
        raise UnknownSubjectError("there is no policy change of this number")
    return cast(_Found, found)


_DECIDED = aliased(SnapshotRow)


def _changes(
    status: Status | None,
) -> Select[PolicyChangeRow, SnapshotRow, PolicyDecisionRow, SnapshotRow]:
    query = (
        select(PolicyChangeRow, SnapshotRow, PolicyDecisionRow, _DECIDED)
        .join(SnapshotRow, SnapshotRow.version == PolicyChangeRow.snapshot_version)
        .outerjoin(PolicyDecisionRow, PolicyDecisionRow.change_id == PolicyChangeRow.id)
        .outerjoin(_DECIDED, _DECIDED.version == PolicyDecisionRow.snapshot_version)
    )
    if status == "pending":
        return query.where(PolicyDecisionRow.change_id.is_(None))
    return query if status is None else query.where(PolicyDecisionRow.decision == status)


def _record(found: _Found) -> PolicyChangeRecord:
    row, requested, decision, decided = found
    return PolicyChangeRecord(
        id=row.id,
        kind=row.kind,
        subject=row.subject,
        status="pending" if decision is None else cast(Status, decision.decision),
        weakens=json.loads(row.weakens),
        document=json.loads(row.document),
        requested=ProvenanceRecord(**requested.provenance()),
        decided=None if decided is None else ProvenanceRecord(**decided.provenance()),
    )
