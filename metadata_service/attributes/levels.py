"""The classification levels: what each means where an attribute says nothing else."""

from __future__ import annotations

from collections.abc import Callable

from sqlalchemy.orm import Session

from idgraph.model.classification import Classification, ClassificationLevels
from idgraph.web.refusals import RefusedRequestError
from metadata_service.attributes.rules import policy_problem
from metadata_service.storage.edits import Edit
from metadata_service.storage.tables import LevelsRow
from metadata_service.storage.whole_documents import WholeDocument

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
