"""Batch Operations: every job that the person sees, as the profile service reports them."""

from __future__ import annotations

from typing import Any, Literal

from fastapi import APIRouter, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from idgraph.client import AsyncProfilesClient
from idgraph.model.jobs import JobKind, JobState
from metadata_service.ui.frame import in_words
from metadata_service.ui.page import (
    START_SECONDS,
    Cursor,
    OwnFields,
    OwnPage,
    Polled,
    SignedIn,
    Text,
    see_other,
)

router = APIRouter()

LIST = "/ui/jobs"


@router.get(LIST)
def show_list(
    page: Polled,
    kind: JobKind | Literal[""] = "",
    state: JobState | Literal[""] = "",
    who: Text = "",
    cursor: Cursor = None,
) -> Response:
    """The list."""
    given = {"kind": kind, "state": state, "who": who, "limit": 50, "cursor": cursor}
    asked = {name: str(value) for name, value in given.items() if value}
    found, kinds, states = page.ask("GET", "jobs", params=asked), list(JobKind), list(JobState)
    return page.render("jobs.html", page=found, asked=asked, kinds=kinds, states=states, subject=subject)


@router.get(LIST + "/new")
def show_new(page: SignedIn) -> Response:
    """The forms that start a job, of those that the person may start."""
    return _new(page, typed={})


@router.post(LIST)
def start(page: SignedIn, fields: OwnFields) -> Response:
    """Start a job."""
    page.on_refusal(_new, typed=fields)
    body: dict[str, Any] = {"kind": fields.get("kind", ""), "reason": fields.get("reason", "").strip()}
    body |= {"repair": True} if fields.get("repair") else {}
    body |= {name: fields[name] for name in ("form", "segment", "rate") if fields.get(name)}
    job = page.ask("POST", "jobs", body=body, seconds=START_SECONDS)
    return see_other(f"{LIST}/{job['id']}", done="started")


@router.get(LIST + "/{job_id}")
def show(page: Polled, job_id: str, done: Literal["", "started", "cancelled", "resumed"] = "") -> Response:
    """One job, which the page asks for again while it runs."""
    return _page(page, job_id, done=done)


@router.post(LIST + "/{job_id}/{act}")
def act(page: SignedIn, fields: OwnFields, job_id: str, act: Literal["cancel", "resume"]) -> Response:
    """Cancel or resume it."""
    page.on_refusal(_page, job_id)
    body = {"reason": fields.get("reason", "").strip()}
    job = page.ask("POST", "jobs", job_id, act, body=body, seconds=START_SECONDS)
    return see_other(f"{LIST}/{job['id']}", done="cancelled" if act == "cancel" else "resumed")


@router.get(LIST + "/{job_id}/download")
def download(page: SignedIn, job_id: str) -> Response:
    """The file of an export, passed on."""
    return _Download(page.profile_source.async_client(page.session.profiles_token or ""), job_id)


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
    """The subject of a job, in words."""
    digests = ("protection", "definition")
    what = {in_words(name): value for name, value in job["what"].items() if value and name not in digests}
    shown = {name: ", ".join(value) if isinstance(value, list) else value for name, value in what.items()}
    return ", ".join(name if value is True else f"{name} {value}" for name, value in shown.items())


def _page(page: OwnPage, job_id: str, status: int = 200, **context: Any) -> Response:
    job = page.ask("GET", "jobs", job_id)
    response = page.render("job.html", status, job=job, subject=subject(job), **context)
    if "hx-request" in page.request.headers and job["state"] != JobState.RUNNING:
        # The possible acts have changed: all of the page is new.
        response.headers["HX-Refresh"] = "true"
    return response


def _new(page: OwnPage, status: int = 200, **context: Any) -> Response:
    with page.profiles() as client:
        kinds = client.call("GET", "jobs", params={"limit": 1})["may_start"]
        segments = [each["name"] for each in client.call("GET", "segments")["items"]]
    return page.render("new_job.html", status, kinds=kinds, segments=segments, **context)
