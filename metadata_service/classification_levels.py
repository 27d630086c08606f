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


def put_classification_levels(
    edit: Edit, levels: ClassificationLevels, precondition: Callable[[str], None]
) -> None:
    """Put others in force, for what is saved and found from now on. Raises RefusedError."""
    for classification in Classification:
        policy = levels.policy(classification)
        problem = policy_problem(classification, policy.encryption, policy.indexable)
        if problem:
            raise RefusedError(problem, f"/{classification}/indexable")
    known = classification_levels(edit.session)
    precondition(known.model_dump_json())
    if levels != known:
        edit.session.add(LevelsRow(snapshot_version=edit.version, document=levels.model_dump_json()))
        edit.record("classification_levels", "", None, "saved")
