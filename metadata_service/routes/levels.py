"""The classification levels."""

from __future__ import annotations

from fastapi import APIRouter, Response

from metadata_service.classification_levels import classification_levels, put_classification_levels
from metadata_service.conditional import IfNoneMatch, Precondition, json_answer
from metadata_service.service import Actor, Reason, Service
from model.classification import ClassificationLevels

router = APIRouter(prefix="/v1/classification-levels", tags=["classification levels"])


@router.get("", response_model=ClassificationLevels)
def get(service: Service, if_none_match: IfNoneMatch = None) -> Response:
    """What each level means where an attribute says nothing else."""
    with service.database.read() as session:
        levels = classification_levels(session)
    return json_answer(levels.model_dump_json(), if_none_match)


@router.put("", response_model=ClassificationLevels)
def put(
    levels: ClassificationLevels,
    service: Service,
    actor: Actor,
    precondition: Precondition,
    reason: Reason = "",
) -> Response:
    """Change them, for attributes that are saved and values that are found sensitive from now on."""
    with service.database.write(actor, reason) as edit:
        put_classification_levels(edit, levels, precondition)
    return json_answer(levels.model_dump_json())
