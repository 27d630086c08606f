"""The feed of merges and splits."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from profile_service.api.documents import Moves, answer
from profile_service.api.service import ActingCaller, Service
from profile_service.link_documents import move_document

router = APIRouter(prefix="/v1/changes", tags=["changes"])


@router.get("", response_model=Moves)
def get(
    service: Service,
    caller: ActingCaller,
    cursor: Annotated[str, Query(max_length=200, description="`next` of the page before.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
) -> Response:
    """Merges, splits and moves between profiles, the oldest first. Keep `next`, and ask with it again for what came since."""
    found = service.history(service.reader(caller)).page(cursor, limit)
    last = found[-1].cursor if found else cursor
    return answer({"items": [move_document(each) for each in found], "next": last or None})
