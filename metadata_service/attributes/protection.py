"""Documents that say how whole groups of attributes are protected: defaults of discovery, classification levels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from idgraph.model.classification import Classification, ClassificationLevels
from idgraph.model.snapshots import DiscoveryDefaults
from idgraph.web.refusals import RefusedRequestError
from metadata_service.attributes.rules import policy_problem
from metadata_service.storage.edits import Edit, Kind
from metadata_service.storage.tables import DefaultsRow, LevelsRow

Document = TypeVar("Document", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class WholeDocument(Generic[Document]):
    """One such document, by the kind that the log of changes calls it and the table of its versions."""

    kind: Kind
    table: type[DefaultsRow | LevelsRow]
    model: type[Document]

    def read(self, session: Session) -> Document:
        """The one in force; before the first edit, what the model says."""
        newest = select(self.table.document).order_by(self.table.snapshot_version.desc()).limit(1)
        document = session.scalar(newest)
        return self.model() if document is None else self.model.model_validate_json(document)

    def save(self, edit: Edit, document: Document) -> None:
        """Put another in force; the same again makes no new version."""
        if document != self.read(edit.session):
            edit.session.add(self.table(snapshot_version=edit.version, document=document.model_dump_json()))
            edit.record(self.kind, "", None, "saved")


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


_LEVELS = WholeDocument("classification_levels", LevelsRow, ClassificationLevels)


def classification_levels(session: Session) -> ClassificationLevels:
    """Those in force."""
    return _LEVELS.read(session)


def check_classification_levels(
    session: Session, levels: ClassificationLevels, precondition: Callable[[str], None]
) -> None:
    """Raises RefusedError for levels that cannot work."""
    for classification in Classification:
        policy = levels.policy(classification)
        problem = policy_problem(classification, policy.encryption, policy.indexable)
        if problem:
            raise RefusedRequestError(problem, f"/{classification}/indexable")
    precondition(classification_levels(session).model_dump_json())


def save_classification_levels(edit: Edit, levels: ClassificationLevels) -> None:
    """Put others in force, for what is saved and found from now on."""
    _LEVELS.save(edit, levels)
