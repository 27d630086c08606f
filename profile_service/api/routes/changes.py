"""The feed of merges, splits, and crossings of segments."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from fastapi import APIRouter, Query, Response

from idgraph.web.refusals import UnknownSubjectError
from profile_service.api.documents import Moves, answer
from profile_service.api.service import ActingCaller, Service
from profile_service.history import ProfileMove
from profile_service.link_documents import move_document
from profile_service.reader import ProfileReader

SegmentName = Annotated[str | None, Query(max_length=100, description="Only who entered and left this one.")]

router = APIRouter(prefix="/v1/changes", tags=["changes"])


@router.get("", response_model=Moves)
def get(
    service: Service,
    caller: ActingCaller,
    cursor: Annotated[str, Query(max_length=200, description="`next` of the page before.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    segment: SegmentName = None,
) -> Response:
    """Merges, splits and moves between profiles, and who entered and left segments; the oldest first. Keep `next`, and ask
    with it again for what came since."""
    reader = service.reader(caller)
    visible = _visible(reader, segment)
    items: list[ProfileMove] = []
    while found := service.history(reader).page(cursor, limit, segment):
        cursor = found[-1].cursor
        items = [each for each in found if not each.segment or each.segment in visible]
        if items:
            break
    return answer({"items": list(map(move_document, items)), "next": cursor or None})


def _visible(reader: ProfileReader, segment: str | None) -> Collection[str]:
    visible = reader.segments()
    if segment is not None and segment not in visible:
        raise UnknownSubjectError("there is no such segment")
    return visible
