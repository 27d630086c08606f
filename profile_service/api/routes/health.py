"""Routes for probes. They wait for no thread, of which a part that is away may hold all."""

from __future__ import annotations

from fastapi import APIRouter

from idgraph.web.refusals import NotReadyError
from profile_service.api.service import Service

router = APIRouter(prefix="/health", tags=["health"])


@router.get("/live")
async def live() -> dict[str, str]:
    """Needs no token. The process answers."""
    return {"status": "ok"}


@router.get("/ready")
async def ready(service: Service) -> dict[str, str]:
    """Needs no token. 503 until the metadata service has answered for the first time."""
    if not service.following.is_ready():
        raise NotReadyError("the metadata service has not answered yet")
    return {"status": "ok"}
