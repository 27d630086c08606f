"""Audit of profiles: the profile service's own log, for privacy officers. Who revealed what of whom, and why."""

from __future__ import annotations

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request, Response

from idgraph.model.errors import ProfileServiceError
from metadata_service.storage.sessions import Session
from metadata_service.ui.page import OwnFields, SignedIn, curl, render, see_other
from metadata_service.ui.profiles import profiles_client, profiles_source

router = APIRouter()

ADDRESS = "/ui/audit/profiles"
PAGE = 50
VERIFY_SECONDS = 60.0
ACTIONS = (
    *("reveal", "refused reveal", "access request", "download", "erasure", "consent", "person token"),
    *("pin", "start", "cancel", "pause flow", "resume flow"),
)
SHOWN = ("profile", "subject", "attributes", "purpose", "status")
"""What only some acts have."""
Text = Annotated[str, Query(max_length=300)]


@router.get(ADDRESS)
def show(
    request: Request,
    session: SignedIn,
    action: Text = "",
    who: Text = "",
    profile: Annotated[list[str], Query(max_length=50)] = [],  # noqa: B006 - never changed
    cursor: Annotated[str | None, Query(max_length=100)] = None,
) -> Response:
    """A page of the log, the newest first. `profile` are hashes."""
    return _page(request, session, {"action": action, "who": who, "profile": profile, "cursor": cursor})


@router.post(ADDRESS)
def find(request: Request, session: SignedIn, fields: OwnFields) -> Response:
    """What was done to a person: the identifier is in no address, its hashes are."""
    try:
        with profiles_client(request, session) as client:
            params = {"profile": fields.get("of", "").strip(), "limit": 1}
            hashes = client.call("GET", "audit", params=params)["profiles"]
    except ProfileServiceError as error:
        if error.status != 400:
            raise
        return _page(request, session, {}, 422, problem="An identifier is written type:value.")
    return see_other(f"{ADDRESS}?{urlencode({'profile': hashes}, doseq=True)}")


@router.post(ADDRESS + "/verify")
def verify(request: Request, session: SignedIn, fields: OwnFields) -> Response:
    """Check the chain."""
    del fields
    with profiles_client(request, session, VERIFY_SECONDS) as client:
        report = client.call("POST", "audit", "verify")
    return _page(request, session, {}, report=report)


def _page(
    request: Request, session: Session, asked: dict[str, Any], status: int = 200, **context: Any
) -> Response:
    params = {name: value for name, value in asked.items() if value}
    with profiles_client(request, session) as client:
        page = client.call("GET", "audit", params=params | {"limit": PAGE})
    page["items"] = [dict.fromkeys(SHOWN) | each for each in page["items"]]
    return render(
        request,
        "profile_audit.html",
        session,
        status,
        title="Audit",
        page=page,
        asked={"action": "", "who": "", "profile": []} | asked,
        is_filtered=bool(params),
        actions=ACTIONS,
        curl=curl(profiles_source(request).url, "/v1/audit", **params),
        **{"report": None, "problem": ""} | context,
    )
