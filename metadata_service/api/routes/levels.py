"""The classification levels."""

from __future__ import annotations

from fastapi import APIRouter, Response

from idgraph.model.classification import ClassificationLevels
from idgraph.web.conditional import IfNoneMatch, Precondition, json_answer
from metadata_service.api.routes.policy_changes import ASKED, asked
from metadata_service.api.service import Actor, Reason, Service
from metadata_service.attributes.policy_changes import request_change
from metadata_service.attributes.protection import (
    check_classification_levels,
    classification_levels,
    save_classification_levels,
)
from metadata_service.attributes.weakening import opened_by_levels

router = APIRouter(prefix="/v1/classification-levels", tags=["classification levels"])


@router.get("", response_model=ClassificationLevels)
def get(service: Service, if_none_match: IfNoneMatch = None) -> Response:
    """What each level means where an attribute says nothing else."""
    with service.database.read() as session:
        levels = classification_levels(session)
    return json_answer(levels.model_dump_json(), if_none_match)


@router.put("", response_model=ClassificationLevels, responses=ASKED)
def put(
    levels: ClassificationLevels,
    service: Service,
    actor: Actor,
    precondition: Precondition,
    reason: Reason = "",
) -> Response:
    """Change them, for attributes that are saved and values that are found sensitive from now on. What weakens
    protection is kept until a second person approves it, and answered with 202."""
    with service.database.write(actor, reason) as edit:
        check_classification_levels(edit.session, levels, precondition)
        weakens = opened_by_levels(edit.session, levels)
        if weakens:
            known = classification_levels(edit.session)
            return asked(request_change(edit, "classification_levels", "", known, levels, weakens))
        save_classification_levels(edit, levels)
    return json_answer(levels.model_dump_json())
