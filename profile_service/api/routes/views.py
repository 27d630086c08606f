"""Routes for views: which there are. Look-ups and searches take one by its name."""

from __future__ import annotations

from fastapi import APIRouter, Response

from profile_service.api.documents import ViewList, answer
from profile_service.api.service import Service

router = APIRouter(prefix="/v1/views", tags=["views"])


@router.get("", response_model=ViewList)
def list_(service: Service) -> Response:
    """The views, by name."""
    shown = ("name", "version", "description", "purpose")
    found = service.views().documents.values()
    return answer({"items": [{name: getattr(each, name) for name in shown} for each in found]})
