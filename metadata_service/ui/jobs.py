"""Batch Operations: every job that the person sees, as the profile service tells them."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from idgraph.client import AsyncProfilesClient
from idgraph.model.errors import ProfileServiceError
from idgraph.model.jobs import JobKind, JobState
from metadata_service.storage.sessions import Session
from metadata_service.ui.page import OwnFields, Polled, SignedIn, curl, in_words, render, see_other
from metadata_service.ui.profiles import profiles_client, profiles_source

router = APIRouter()

LIST = "/ui/jobs"
PAGE = 50
START_SECONDS = 60.0
"""A job is started once its stores are open and its work is planned."""
Text = Annotated[str, Query(max_length=200)]


@router.get(LIST)
def show_list(
    request: Request,
    session: Polled,
    kind: JobKind | Literal[""] = "",
    state: JobState | Literal[""] = "",
    who: Text = "",
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
) -> Response:
    """The list."""
    asked = {name: str(value) for name, value in (("kind", kind), ("state", state), ("who", who)) if value}
    params = asked | {"limit": PAGE} | ({"cursor": cursor} if cursor else {})
    with profiles_client(request, session) as client:
        page = client.call("GET", "jobs", params=params)
    return render(
        request,
        "jobs.html",
        session,
        title="Batch Operations",
        page=page,
        kinds=list(JobKind),
        states=list(JobState),
        asked=asked,
        subject=subject,
        curl=curl(profiles_source(request).url, "/v1/jobs", **params),
    )


@router.get(LIST + "/new")
def show_new(request: Request, session: SignedIn) -> Response:
    """The forms that start a job, of those that the person may start."""
    return _new(request, session)


@router.post(LIST)
def start(request: Request, session: SignedIn, fields: OwnFields) -> Response:
    """Start a job."""
    body: dict[str, Any] = {"kind": fields.get("kind", ""), "reason": fields.get("reason", "").strip()}
    body |= {"repair": True} if fields.get("repair") else {}
    body |= {name: fields[name] for name in ("form", "segment") if fields.get(name)}
    try:
        body |= {"rate": int(fields["rate"])} if fields.get("rate") else {}
        with profiles_client(request, session, START_SECONDS) as client:
            job = client.call("POST", "jobs", body=body)
    except ValueError:
        return _new(request, session, 422, typed=fields, problem="The rate is a number.")
    except ProfileServiceError as error:
        if error.status not in (404, 409, 422):
            raise
        return _new(request, session, error.status, typed=fields, problem=str(error))
    return see_other(f"{LIST}/{job['id']}", done="started")


@router.get(LIST + "/{job_id}")
def show(
    request: Request,
    session: Polled,
    job_id: str,
    done: Literal["", "started", "cancelled", "resumed"] = "",
) -> Response:
    """One job, which the page asks for again while it runs."""
    return _page(request, session, job_id, done=done)


@router.post(LIST + "/{job_id}/{act}")
def act(
    request: Request, session: SignedIn, fields: OwnFields, job_id: str, act: Literal["cancel", "resume"]
) -> Response:
    """Cancel or resume it."""
    body = {"reason": fields.get("reason", "").strip()}
    try:
        with profiles_client(request, session, START_SECONDS) as client:
            job = client.call("POST", "jobs", job_id, act, body=body)
    except ProfileServiceError as error:
        if error.status not in (409, 422):
            raise
        return _page(request, session, job_id, error.status, problem=str(error))
    return see_other(f"{LIST}/{job['id']}", done="cancelled" if act == "cancel" else "resumed")


@router.get(LIST + "/{job_id}/download")
def download(request: Request, session: SignedIn, job_id: str) -> Response:
    """The file of an export, passed on."""
    return _Download(profiles_source(request).async_client(session.profiles_token or ""), job_id)


class _Download(Response):
    """Passes a file on, and closes the connection to the profile service however that ends."""

    def __init__(self, client: AsyncProfilesClient, job_id: str) -> None:
        super().__init__()
        self._client = client
        self._job_id = job_id

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with (
            self._client as client,
            client.download("jobs", self._job_id, "download") as (headers, parts),
        ):
            kept = {name: headers[name] for name in ("content-type", "content-disposition")}
            await StreamingResponse(parts, headers=kept)(scope, receive, send)


def subject(job: dict[str, Any]) -> str:
    """What a job works on, in words."""
    digests = ("protection", "definition")
    what = {in_words(name): value for name, value in job["what"].items() if value and name not in digests}
    return ", ".join(name if value is True else f"{name} {value}" for name, value in what.items())


def _page(request: Request, session: Session, job_id: str, status: int = 200, **context: Any) -> Response:
    with profiles_client(request, session) as client:
        job = client.call("GET", "jobs", job_id)
    shown = {"done": "", "problem": None} | context
    response = render(
        request,
        "job.html",
        session,
        status,
        title=f"{job['kind'].capitalize()} {job_id}",
        job=job,
        subject=subject(job),
        curl=curl(profiles_source(request).url, f"/v1/jobs/{quote(job_id, safe='')}"),
        **shown,
    )
    if "hx-request" in request.headers and job["state"] != JobState.RUNNING:
        # What may be done with it has changed: all of the page is new.
        response.headers["HX-Refresh"] = "true"
    return response


def _new(request: Request, session: Session, status: int = 200, **context: Any) -> Response:
    with profiles_client(request, session) as client:
        kinds = client.call("GET", "jobs", params={"limit": 1})["may_start"]
        segments = [each["name"] for each in client.call("GET", "segments")["items"]]
    shown = {"typed": {}, "problem": None} | context
    return render(
        request,
        "new_job.html",
        session,
        status,
        title="Start a job",
        kinds=kinds,
        segments=segments,
        **shown,
    )
