"""The discovery defaults: what holds for an attribute that nobody declared."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.orm import Session

from idgraph.model.snapshots import DiscoveryDefaults
from idgraph.web.refusals import RefusedRequestError
from metadata_service.attributes.levels import classification_levels
from metadata_service.attributes.rules import policy_problem
from metadata_service.storage.edits import Edit
from metadata_service.storage.tables import DefaultsRow
from metadata_service.storage.whole_documents import WholeDocument

_DEFAULTS = WholeDocument("discovery_defaults", DefaultsRow, DiscoveryDefaults)


def discovery_defaults(session: Session) -> DiscoveryDefaults:
    """Those in force."""
    return _DEFAULTS.read(session)


def plan_discovery_defaults(
    session: Session, stated: DiscoveryDefaults, precondition: Callable[[str], None]
) -> DiscoveryDefaults:
    """The defaults that somebody stated: what was left out is what their classification level means. Writes
    nothing. Raises RefusedError."""
    levels = classification_levels(session)
    defaults = stated.model_copy(update=levels.unstated(stated, stated.classification))
    problem = policy_problem(defaults.classification, defaults.encryption, defaults.indexable)
    if problem:
        raise RefusedRequestError(problem, "/indexable")
    precondition(discovery_defaults(session).model_dump_json())
    return defaults


def save_discovery_defaults(edit: Edit, defaults: DiscoveryDefaults) -> None:
    """Put others in force, for attributes discovered from now on."""
    _DEFAULTS.save(edit, defaults)
