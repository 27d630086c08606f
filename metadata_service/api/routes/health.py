"""Is the service alive, and its database too?"""

from __future__ import annotations

from fastapi import APIRouter

from metadata_service.api.service import Service

router = APIRouter(tags=["health"])


@router.get("/health/live")
def live() -> dict[str, str]:
    """Needs no token. The process answers."""
    return {"status": "ok"}


@router.get("/health/ready")
@router.get("/healthz")
def health(service: Service) -> dict[str, str]:
    """Needs no token. 503 when the database does not answer."""
    service.database.revision()
    return {"status": "ok"}
