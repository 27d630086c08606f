"""Flows: what each one reports of itself, pause and resume."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response

from idgraph.model.errors import ProfileServiceError
from idgraph.model.sources import FLOW_NAME
from metadata_service.storage.sessions import Session
from metadata_service.ui.charts import Chart, chart
from metadata_service.ui.dead_letters import newest_events, record_lines
from metadata_service.ui.page import OwnFields, Polled, SignedIn, curl, render, see_other
from metadata_service.ui.profiles import profiles_client, profiles_source

router = APIRouter()

LIST = "/ui/flows"
CHARTED = ("events_per_second", "waiting", "commit_seconds_p99", "set_aside_per_second")
Name = Annotated[str, Path(pattern=FLOW_NAME)]
Act = Literal["pause", "resume"]
SAMPLED = 5


@router.get(LIST)
def show_list(request: Request, session: Polled) -> Response:
    """All flows of the machine."""
    with profiles_client(request, session) as client:
        flows = client.call("GET", "flows")["items"]
    return render(
        request,
        "flows.html",
        session,
        title="Flows",
        flows=flows,
        curl=curl(profiles_source(request).url, "/v1/flows"),
    )


@router.get(LIST + "/{name}")
def show(request: Request, session: Polled, name: Name, done: Act | Literal[""] = "") -> Response:
    """One flow, whose figures the page asks for again every two seconds."""
    return _page(request, session, name, done=done)


@router.get(LIST + "/{name}/sources/{source}")
def watch(
    request: Request,
    session: Polled,
    name: Name,
    source: Annotated[str, Path(max_length=64)],
    event_type: Annotated[str, Query(max_length=200)] = "",
    watched: bool = False,
) -> Response:
    """The newest events of a source; while they are watched, the page asks again every three seconds."""
    problem, events = None, []
    try:
        events = newest_events(request, session, source, event_type, SAMPLED)
    except ProfileServiceError as error:
        if error.status not in (400, 404, 422):
            raise
        problem = str(error)
    params = {"limit": SAMPLED} | ({"event_type": event_type} if event_type else {})
    return render(
        request,
        "sample.html",
        session,
        title=f"Newest events of {source}",
        flow=name,
        source=source,
        event_type=event_type,
        watched=watched,
        events=[(each, record_lines(each)) for each in events],
        problem=problem,
        curl=curl(profiles_source(request).url, f"/v1/sources/{source}/events", **params),
    )


@router.post(LIST + "/{name}/{act}")
def act(request: Request, session: SignedIn, fields: OwnFields, name: Name, act: Act) -> Response:
    """Pause or resume it."""
    reason = fields.get("reason", "").strip()
    try:
        with profiles_client(request, session) as client:
            client.call("POST", "flows", name, act, body={"reason": reason})
    except ProfileServiceError as error:
        if error.status not in (409, 422):
            raise
        return _page(request, session, name, error.status, problem=str(error), reason=reason)
    return see_other(f"{LIST}/{name}", done=act)


def _page(request: Request, session: Session, name: str, status: int = 200, **context: Any) -> Response:
    with profiles_client(request, session) as client:
        flow = client.call("GET", "flows", name)
    return render(
        request,
        "flow.html",
        session,
        status,
        title=name,
        flow=flow,
        report=flow["report"],
        charts=_charts(flow["report"]),
        now_ms=time.time() * 1000,
        curl=curl(profiles_source(request).url, f"/v1/flows/{name}"),
        **{"done": "", "problem": None, "reason": ""} | context,
    )


def _charts(report: dict[str, Any]) -> dict[str, Chart | None]:
    """By the name of the figure."""
    history = report.get("history", [])
    moments = [each["at_ms"] for each in history]
    return {name: chart(moments, [each[name] for each in history]) for name in CHARTED}
