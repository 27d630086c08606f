"""What is done for one person: reveal a protected value, access request, erasure, consents."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from idgraph.client import ProfilesClient
from idgraph.model import paths
from idgraph.model.errors import ProfileServiceError
from idgraph.web.path_values import path_value
from idgraph.web.refusals import UnknownSubjectError
from metadata_service.storage.sessions import Session
from metadata_service.ui.page import OwnFields, Polled, SignedIn, curl, curl_post, render, see_other
from metadata_service.ui.profiles import LIST, Named, profiles_client, profiles_source

router = APIRouter()

PURPOSES = ("Support", "Request of the person", "Fraud investigation", "Data quality", "Legal obligation")
"""What a protected value may be revealed for; the case is written beside it, and both are recorded."""
REVEALED_SECONDS = 60
START_SECONDS = 60.0
"""Stores are opened, and dead letters are looked through."""
PERSON = LIST + "/{identifier}"
ACCESS, ERASE = "access-requests", "erasures"


@router.get(PERSON + "/reveal")
def ask_reveal(
    request: Request,
    session: SignedIn,
    named: Named,
    path: Annotated[str, Query(max_length=1024)],
) -> Response:
    """The form: what for, and which case."""
    return _reveal(request, session, named, path)


@router.post(PERSON + "/reveal")
def reveal(request: Request, session: SignedIn, named: Named, fields: OwnFields) -> Response:
    """One value, for a minute."""
    path, purpose, case = (fields.get(name, "").strip() for name in ("path", "purpose", "case"))
    if purpose not in PURPOSES or not case:
        problem = "Choose a purpose, and name the case: both are recorded."
        return _reveal(request, session, named, path, 422, problem=problem, purpose=purpose, case=case)
    with profiles_client(request, session) as client:
        found = client.lookup(named, fields=[path], purpose=f"{purpose}: {case[:120]}")
    value: Any = found["attributes"] if found else {}
    for key in paths.split(path):
        value = value.get(key) if isinstance(value, dict) else None
    if value is None:
        raise UnknownSubjectError("there is no such value of this person")
    response = _reveal(request, session, named, path, value=value, is_shown=True)
    response.headers["Refresh"] = f"{REVEALED_SECONDS}; url={request.url.path.removesuffix('/reveal')}"
    return response


def _reveal(
    request: Request, session: Session, named: str, path: str, status: int = 200, **context: Any
) -> Response:
    shown = {"problem": "", "purpose": "", "case": "", "value": None, "is_shown": False} | context
    return render(
        request,
        "reveal.html",
        session,
        status,
        title="Reveal a value",
        asked=named,
        path=path,
        purposes=PURPOSES,
        seconds=REVEALED_SECONDS,
        **shown,
    )


@router.get(PERSON + "/rights")
def show(request: Request, session: SignedIn, named: Named, recorded: str = "") -> Response:
    """What may be done for the person, and what an erasure would remove."""
    return _page(request, session, named, recorded=recorded)


def _page(request: Request, session: Session, named: str, status: int = 200, **context: Any) -> Response:
    with profiles_client(request, session, START_SECONDS) as client:
        # Asked first: it says whether the caller may do this.
        counts = client.call("POST", "erasures", "preview", body={"identifiers": [named]})
        consents = client.call("GET", "profiles", named, "consents")["items"]
        households = client.call("GET", "profiles", named, "households")["items"]
    shown = {"problem": {}, "typed": {}, "recorded": ""} | context
    return render(
        request,
        "rights.html",
        session,
        status,
        title="Rights of the person",
        asked=named,
        erasure=counts,
        consents=consents,
        households=households,
        curl=curl_post(profiles_source(request).url, "/v1/erasures/preview", {"identifiers": ["user_id:1"]}),
        **shown,
    )


@router.post(PERSON + "/access-requests")
def request_access(request: Request, session: SignedIn, named: Named, fields: OwnFields) -> Response:
    """Start the job."""
    body = {"identifier": named, "reason": fields.get("reason", "").strip()}
    return _started(request, session, named, ACCESS, body, fields)


@router.post(PERSON + "/erasures")
def erase(request: Request, session: SignedIn, named: Named, fields: OwnFields) -> Response:
    """Start the job, once an identifier of the person was typed."""
    typed = fields.get("typed", "").strip()
    with profiles_client(request, session) as client:
        if typed != named and not _is_same(client, named, typed):
            problem = {"typed": "This is no identifier of the person. Write one as type:value."}
            return _page(request, session, named, 422, problem=problem, typed=fields)
    body = {"identifiers": [named], "reason": fields.get("reason", "").strip()}
    return _started(request, session, named, ERASE, body, fields)


def _is_same(client: ProfilesClient, named: str, typed: str) -> bool:
    if ":" not in typed.strip(":"):
        return False
    one, other = client.lookups([named, typed], fields=[])
    return one is not None and other is not None and one["id"] == other["id"]


def _started(
    request: Request, session: Session, named: str, kind: str, body: dict[str, Any], fields: dict[str, str]
) -> Response:
    try:
        with profiles_client(request, session, START_SECONDS) as client:
            job = client.call("POST", kind, body=body)
    except ProfileServiceError as error:
        if error.status not in (409, 422):
            raise
        return _page(request, session, named, error.status, problem={kind: f"{error}."}, typed=fields)
    return see_other(f"/ui/{kind}/{job['id']}")


@router.post(PERSON + "/consents")
def set_consent(request: Request, session: SignedIn, named: Named, fields: OwnFields) -> Response:
    """Record what the person decided."""
    purpose = fields.get("purpose", "").strip()
    body = {"status": fields.get("status", ""), "source": fields.get("source", "").strip()}
    try:
        with profiles_client(request, session) as client:
            client.call("PUT", "profiles", named, "consents", purpose, body=body)
    except ProfileServiceError as error:
        if error.status not in (404, 422):
            raise
        return _page(request, session, named, 422, problem={"consents": f"{error}."}, typed=fields)
    return see_other(request.url.path.removesuffix("/consents") + "/rights", recorded=purpose)


@router.get("/ui/access-requests/{job}")
@router.get("/ui/erasures/{job}")
def show_job(request: Request, session: Polled, job: str) -> Response:
    """How far an access request or an erasure is, and what it gave."""
    kind = path_value(request, 2)
    with profiles_client(request, session) as client:
        found = client.call("GET", kind, job)
    return render(
        request,
        "person_job.html",
        session,
        title="Access request" if kind == ACCESS else "Erasure",
        kind=kind,
        job=found,
        curl=curl(profiles_source(request).url, f"/v1/{kind}/{job}"),
    )


@router.get("/ui/access-requests/{job}/download")
@router.get("/ui/erasures/{job}/download")
def download(request: Request, session: SignedIn, job: str) -> Response:
    """The document of an access request, or the receipt of an erasure."""
    kind = path_value(request, 2)
    with profiles_client(request, session) as client:
        found = client.call("GET", kind, job, "download") if kind == ACCESS else client.call("GET", kind, job)
    content = json.dumps(found if kind == ACCESS else found["receipt"], ensure_ascii=False, indent=1)
    headers = {"Content-Disposition": f'attachment; filename="{kind}.json"'}
    return Response(content.encode("utf-8", "replace"), headers=headers, media_type="application/json")
