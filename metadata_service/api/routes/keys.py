"""API keys."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from idgraph.web.cursors import ListPage
from metadata_service.api.routes.users import NOT_MORE
from metadata_service.api.service import Acting, Paging, Reason, Service
from metadata_service.storage import keys
from metadata_service.storage.keys import KeyRecord, MadeKey, NewKey

router = APIRouter(prefix="/v1/keys", tags=["keys"])

Number = Annotated[int, Path(ge=1, lt=2**31)]


@router.get("")
def list_(
    service: Service,
    paging: Paging,
    caller: Acting,
    q: Annotated[str, Query(max_length=100, description="A part of the name.")] = "",
) -> ListPage[KeyRecord]:
    """Keys in use, the newest first: one's own; for admins and privacy officers those of all, and the tokens of machines."""
    with service.database.read() as session:
        return keys.list_keys(session, caller, paging, datetime.now(UTC), q)


@router.post("", status_code=201, responses=NOT_MORE)
def make(wanted: NewKey, service: Service, caller: Acting, reason: Reason = "") -> MadeKey:
    """Make a key, with at most what its maker has. It ends with its maker, a person or a token, but for those of the
    roles `pipeline` and `service`."""
    with service.database.write(caller.name, reason) as edit:
        return keys.make_key(edit, caller, wanted)


@router.post("/{number}/rotate", responses=NOT_MORE)
def rotate(number: Number, service: Service, caller: Acting, reason: Reason = "") -> MadeKey:
    """Another secret for a key of one's own; the one before ends at once."""
    with service.database.write(caller.name, reason) as edit:
        return keys.rotate_key(edit, caller, number)


@router.delete("/{number}", status_code=204)
def revoke(number: Number, service: Service, caller: Acting, reason: Reason = "") -> Response:
    """Revoke a key of one's own, or as an admin any."""
    with service.database.write(caller.name, reason) as edit:
        keys.revoke_key(edit, caller, number)
    return Response(status_code=204)
