"""Routes for the profile service: who may call it."""

from __future__ import annotations

from datetime import UTC, datetime

from fastapi import APIRouter, Response

from idgraph.model.callers import CallerList
from idgraph.web.conditional import IfNoneMatch, json_answer
from metadata_service.api.access import CALLERS
from metadata_service.api.service import Service
from metadata_service.storage.grants import grants_in_force
from metadata_service.storage.sessions import session_callers
from metadata_service.storage.tokens import callers_in
from metadata_service.storage.users import known_people

router = APIRouter(prefix=CALLERS, tags=["callers"])


@router.get("", response_model=CallerList, responses={304: {"description": "Nothing changed."}})
def get_callers(service: Service, if_none_match: IfNoneMatch = None) -> Response:
    """Whoever may call the profile service, by a token or signed in to the pages: digests, never tokens. For the roles
    `service` and `admin`."""
    with service.database.read() as session:
        callers = (*callers_in(session), *session_callers(session))
        people, grants = known_people(session), grants_in_force(session, datetime.now(UTC))
    found = CallerList(callers=callers, people=tuple(people), grants=tuple(grants))
    return json_answer(found.model_dump_json(), if_none_match)
