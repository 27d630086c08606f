"""The discovery defaults: what holds for an attribute that nobody declared."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select
from sqlalchemy.orm import Session

from metadata_service.attribute_rules import policy_problem
from metadata_service.classification_levels import classification_levels
from metadata_service.edits import Edit
from metadata_service.refusals import RefusedError
from metadata_service.tables import DefaultsRow
from model.snapshots import DiscoveryDefaults


def discovery_defaults(session: Session) -> DiscoveryDefaults:
    """Those in force."""
    newest = select(DefaultsRow.document).order_by(DefaultsRow.snapshot_version.desc()).limit(1)
    document = session.scalar(newest)
    return DiscoveryDefaults() if document is None else DiscoveryDefaults.model_validate_json(document)


def plan_discovery_defaults(
    session: Session, stated: DiscoveryDefaults, precondition: Callable[[str], None]
) -> DiscoveryDefaults:
    """The defaults that somebody stated: what was left out is what their classification level means. Writes
    nothing. Raises RefusedError."""
    levels = classification_levels(session)
    defaults = stated.model_copy(update=levels.unstated(stated, stated.classification))
    problem = policy_problem(defaults.classification, defaults.encryption, defaults.indexable)
    if problem:
        raise RefusedError(problem, "/indexable")
    precondition(discovery_defaults(session).model_dump_json())
    return defaults


def save_discovery_defaults(edit: Edit, defaults: DiscoveryDefaults) -> None:
    """Put others in force, for attributes discovered from now on."""
    if defaults != discovery_defaults(edit.session):
        edit.session.add(DefaultsRow(snapshot_version=edit.version, document=defaults.model_dump_json()))
        edit.record("discovery_defaults", "", None, "saved")
