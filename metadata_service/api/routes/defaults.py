"""The discovery defaults."""

from __future__ import annotations

from fastapi import APIRouter, Response

from idgraph.model.snapshots import DiscoveryDefaults
from idgraph.web.conditional import IfNoneMatch, Precondition, json_answer
from metadata_service.api.routes.policy_changes import ASKED, asked
from metadata_service.api.service import Actor, Reason, Service
from metadata_service.attributes.policy_changes import request_change
from metadata_service.attributes.protection import (
    discovery_defaults,
    plan_discovery_defaults,
    save_discovery_defaults,
)
from metadata_service.attributes.weakening import opened_by_defaults

router = APIRouter(prefix="/v1/discovery-defaults", tags=["discovery defaults"])


@router.get("", response_model=DiscoveryDefaults)
def get(service: Service, if_none_match: IfNoneMatch = None) -> Response:
    """What holds for an attribute that nobody declared."""
    with service.database.read() as session:
        defaults = discovery_defaults(session)
    return json_answer(defaults.model_dump_json(), if_none_match)


@router.put("", response_model=DiscoveryDefaults, responses=ASKED)
def put(
    defaults: DiscoveryDefaults,
    service: Service,
    actor: Actor,
    precondition: Precondition,
    reason: Reason = "",
) -> Response:
    """Change them, for attributes discovered from now on. What weakens protection is kept until a second person
    approves it, and answered with 202."""
    with service.database.write(actor, reason) as edit:
        planned = plan_discovery_defaults(edit.session, defaults, precondition)
        weakens = opened_by_defaults(edit.session, planned)
        if weakens:
            known = discovery_defaults(edit.session)
            return asked(request_change(edit, "discovery_defaults", "", known, planned, weakens))
        save_discovery_defaults(edit, planned)
    return json_answer(planned.model_dump_json())
