"""The discovery defaults."""

from __future__ import annotations

from fastapi import APIRouter, Response

from metadata_service.conditional import IfNoneMatch, Precondition, json_answer
from metadata_service.defaults import discovery_defaults, put_discovery_defaults
from metadata_service.service import Actor, Reason, Service
from model.snapshots import DiscoveryDefaults

router = APIRouter(prefix="/v1/discovery-defaults", tags=["discovery defaults"])


@router.get("", response_model=DiscoveryDefaults)
def get(service: Service, if_none_match: IfNoneMatch = None) -> Response:
    """What holds for an attribute that nobody declared."""
    with service.database.read() as session:
        defaults = discovery_defaults(session)
    return json_answer(defaults.model_dump_json(), if_none_match)


@router.put("", response_model=DiscoveryDefaults)
def put(
    defaults: DiscoveryDefaults,
    service: Service,
    actor: Actor,
    precondition: Precondition,
    reason: Reason = "",
) -> Response:
    """Change them, for attributes discovered from now on."""
    with service.database.write(actor, reason) as edit:
        saved = put_discovery_defaults(edit, defaults, precondition)
    return json_answer(saved.model_dump_json())
