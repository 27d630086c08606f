"""Acts for one person: reveal a protected value, access request, erasure, consents."""

from __future__ import annotations

import json
from typing import Any

from fastapi import APIRouter, Response

from idgraph.client import ProfilesClient
from idgraph.model import paths
from idgraph.web.path_values import path_value
from idgraph.web.refusals import RefusedRequestError, UnknownSubjectError
from metadata_service.ui.page import START_SECONDS, OwnFields, OwnPage, Polled, SignedIn, Text, see_other
from metadata_service.ui.profiles import LIST, Named

router = APIRouter()

PURPOSES = ("Support", "Request of the person", "Fraud investigation", "Data quality", "Legal obligation")
"""Purposes for which a protected value may be revealed; the case is written beside it, and both are recorded."""
REVEALED_SECONDS = 60
PERSON = LIST + "/{identifier}"
ACCESS, ERASE = "access-requests", "erasures"


@router.get(PERSON + "/reveal")
def ask_reveal(page: SignedIn, named: Named, path: Text) -> Response:
    """The form: what for, and which case."""
    return _reveal(page, named, path)


@router.post(PERSON + "/reveal")
def reveal(page: SignedIn, named: Named, fields: OwnFields) -> Response:
    """One value, for a minute."""
    path, purpose, case = (fields.get(name, "").strip() for name in ("path", "purpose", "case"))
    if purpose not in PURPOSES or not case:
        problem = "Choose a purpose, and name the case: both are recorded."
        return _reveal(page, named, path, 422, problem=problem, purpose=purpose, case=case)
    with page.profiles() as client:
        found = client.lookup(named, fields=[path], purpose=f"{purpose}: {case[:120]}")
    value: Any = found["attributes"] if found else {}
    for key in paths.split(path):
        value = value.get(key) if isinstance(value, dict) else None
    if value is None:
        raise UnknownSubjectError("there is no such value of this person")
    response = _reveal(page, named, path, value=value, is_shown=True)
    response.headers["Refresh"] = f"{REVEALED_SECONDS}; url={page.request.url.path.removesuffix('/reveal')}"
    return response


def _reveal(page: OwnPage, named: str, path: str, status: int = 200, **context: Any) -> Response:
    return page.render(
        "reveal.html", status, asked=named, path=path, purposes=PURPOSES, seconds=REVEALED_SECONDS, **context
    )


@router.get(PERSON + "/rights")
def show(page: SignedIn, named: Named, recorded: Text = "") -> Response:
    """The acts that are possible for the person, and the effects of an erasure."""
    return _page(page, named, recorded=recorded, typed={})


def _page(
    page: OwnPage, named: str, form: str = "", status: int = 200, problem: str = "", **context: Any
) -> Response:
    """`problem` is what was wrong with a `form`."""
    with page.profiles(START_SECONDS) as client:
        found = {
            # Asked first: it says whether the caller may do this.
            "erasure": client.call("POST", "erasures", "preview", body={"identifiers": [named]}),
            "consents": client.call("GET", "profiles", named, "consents")["items"],
            "households": client.call("GET", "profiles", named, "households")["items"],
        }
    problems = {form: problem} if problem else {}
    return page.render("rights.html", status, asked=named, problem=problems, **found, **context)


@router.post(PERSON + "/access-requests")
def request_access(page: SignedIn, named: Named, fields: OwnFields) -> Response:
    """Start the job."""
    return _started(page, named, ACCESS, {"identifier": named}, fields)


@router.post(PERSON + "/erasures")
def erase(page: SignedIn, named: Named, fields: OwnFields) -> Response:
    """Start the job, once an identifier of the person was typed."""
    typed = fields.get("typed", "").strip()
    with page.profiles() as client:
        if typed != named and not _is_same(client, named, typed):
            page.on_refusal(_page, named, "typed", typed=fields)
            raise RefusedRequestError("This is no identifier of the person. Write one as type:value.")
    return _started(page, named, ERASE, {"identifiers": [named]}, fields)


def _is_same(client: ProfilesClient, named: str, typed: str) -> bool:
    if ":" not in typed.strip(":"):
        return False
    one, other = client.lookups([named, typed], fields=[])
    return one is not None and other is not None and one["id"] == other["id"]


def _started(page: OwnPage, named: str, kind: str, body: dict[str, Any], fields: dict[str, str]) -> Response:
    page.on_refusal(_page, named, kind, typed=fields)
    body |= {"reason": fields.get("reason", "").strip()}
    job = page.ask("POST", kind, body=body, seconds=START_SECONDS)
    return see_other(f"/ui/{kind}/{job['id']}")


@router.post(PERSON + "/consents")
def set_consent(page: SignedIn, named: Named, fields: OwnFields) -> Response:
    """Record what the person decided."""
    page.on_refusal(_page, named, "consents", typed=fields)
    purpose = fields.get("purpose", "").strip()
    body = {"status": fields.get("status", ""), "source": fields.get("source", "").strip()}
    page.ask("PUT", "profiles", named, "consents", purpose, body=body)
    return see_other(page.request.url.path.removesuffix("/consents") + "/rights", recorded=purpose)


@router.get("/ui/access-requests/{job}")
@router.get("/ui/erasures/{job}")
def show_job(page: Polled, job: str) -> Response:
    """The progress of an access request or an erasure, and its result."""
    kind = path_value(page.request, 2)
    return page.render("person_job.html", kind=kind, job=page.ask("GET", kind, job))


@router.get("/ui/access-requests/{job}/download")
@router.get("/ui/erasures/{job}/download")
def download(page: SignedIn, job: str) -> Response:
    """The document of an access request, or the receipt of an erasure."""
    kind = path_value(page.request, 2)
    is_access = kind == ACCESS
    found = page.ask("GET", kind, job, "download") if is_access else page.ask("GET", kind, job)["receipt"]
    content = json.dumps(found, ensure_ascii=False, indent=1)
    headers = {"Content-Disposition": f'attachment; filename="{kind}.json"'}
    return Response(content.encode("utf-8", "replace"), headers=headers, media_type="application/json")
