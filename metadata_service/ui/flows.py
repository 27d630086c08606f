"""Flows: what each one reports of itself, pause and resume, and the newest events of its sources."""

from __future__ import annotations

import time
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Response

from idgraph.model.errors import ProfileServiceError
from idgraph.model.sources import FLOW_NAME
from metadata_service.ui.dead_letters import newest_events
from metadata_service.ui.page import OwnFields, OwnPage, Polled, SignedIn, Text, said, see_other
from metadata_service.ui.sources import missing_source

router = APIRouter()

LIST = "/ui/flows"
Name = Annotated[str, Path(pattern=FLOW_NAME)]
Act = Literal["pause", "resume"]
SAMPLED = 5


@router.get(LIST)
def show_list(page: Polled) -> Response:
    """All flows of the machine."""
    return page.render("flows.html", flows=page.ask("GET", "flows")["items"])


@router.get(LIST + "/{name}")
def show(page: Polled, name: Name, done: Act | Literal["", "again"] = "") -> Response:
    """One flow, whose figures the page asks for again every two seconds."""
    return _page(page, name, done=done)


@router.get(LIST + "/{name}/sources/{source}")
def watch(
    page: Polled,
    name: Name,
    source: Annotated[str, Path(max_length=64)],
    event_type: Text = "",
    watched: bool = False,
) -> Response:
    """The newest events of a source; while they are watched, the page asks again every three seconds."""
    problem, missing, events = None, None, []
    try:
        events = newest_events(page, source, event_type, SAMPLED)
    except ProfileServiceError as error:
        if error.status not in (400, 404, 422):
            raise
        problem = said(error)
        missing = missing_source(page, source)
    asked: dict[str, Any] = {
        "missing": missing,
        "flow": name,
        "source": source,
        "event_type": event_type,
        "watched": watched,
    }
    return page.render("sample.html", events=events, problem=problem, limit=SAMPLED, **asked)


@router.post(LIST + "/{name}/{act}")
def act(page: SignedIn, fields: OwnFields, name: Name, act: Act) -> Response:
    """Pause or resume it, or let a source that waits be tried again."""
    reason, source = fields.get("reason", "").strip(), fields.get("source", "")
    page.on_refusal(_page, name, reason=reason)
    asked = {"source": source} if source else None
    page.ask("POST", "flows", name, act, body={"reason": reason}, params=asked)
    return see_other(f"{LIST}/{name}", done="again" if source else act)


def _page(page: OwnPage, name: str, status: int = 200, **context: Any) -> Response:
    flow = page.ask("GET", "flows", name)
    return page.render("flow.html", status, flow=flow, now_ms=time.time() * 1000, **context)
