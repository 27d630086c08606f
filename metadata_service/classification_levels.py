"""The classification levels: what each means where an attribute says nothing else."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy import select
from sqlalchemy.orm import Session

from metadata_service.attribute_rules import policy_problem
from metadata_service.edits import Edit
from metadata_service.refusals import RefusedError
from metadata_service.tables import LevelsRow
from model.classification import Classification, ClassificationLevels


def classification_levels(session: Session) -> ClassificationLevels:
    """Those in force."""
    newest = select(LevelsRow.document).order_by(LevelsRow.snapshot_version.desc()).limit(1)
    document = session.scalar(newest)
    return ClassificationLevels() if document is None else ClassificationLevels.model_validate_json(document)


def check_classification_levels(
    session: Session, levels: ClassificationLevels, precondition: Callable[[str], None]
) -> None:
    """Raises RefusedError for levels that cannot work."""
    for classification in Classification:
        policy = levels.policy(classification)
        problem = policy_problem(classification, policy.encryption, policy.indexable)
        if problem:
            raise RefusedError(problem, f"/{classification}/indexable")
    precondition(classification_levels(session).model_dump_json())


def save_classification_levels(edit: Edit, levels: ClassificationLevels) -> None:
    """Put others in force, for what is saved and found from now on."""
    if levels != classification_levels(edit.session):
        edit.session.add(LevelsRow(snapshot_version=edit.version, document=levels.model_dump_json()))
        edit.record("classification_levels", "", None, "saved")
