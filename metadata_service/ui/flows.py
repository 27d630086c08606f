"""Flows: what each one reports of itself, pause and resume, and the newest events of its sources."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Path, Response

from idgraph.model.errors import ProfileServiceError
from idgraph.model.sources import FLOW_NAME
from metadata_service.ui.dead_letters import newest_events, record_lines
from metadata_service.ui.page import OwnFields, OwnPage, Polled, SignedIn, Text, see_other

router = APIRouter()

LIST = "/ui/flows"
CHARTED = ("events_per_second", "waiting", "commit_seconds_p99", "set_aside_per_second")
Name = Annotated[str, Path(pattern=FLOW_NAME)]
Act = Literal["pause", "resume"]
SAMPLED = 5
WIDTH, HEIGHT, EDGE = 240, 44, 2
LONGEST_GAP = 2.5
"""Of the usual distance between two moments; beyond it nothing was reported, and the line is broken."""


@router.get(LIST)
def show_list(page: Polled) -> Response:
    """All flows of the machine."""
    flows = page.ask("GET", "flows")["items"]
    return page.render("flows.html", title="Flows", flows=flows, curl=page.curl_profiles("/v1/flows"))


@router.get(LIST + "/{name}")
def show(page: Polled, name: Name, done: Act | Literal[""] = "") -> Response:
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
    problem, events = None, []
    try:
        events = newest_events(page, source, event_type, SAMPLED)
    except ProfileServiceError as error:
        if error.status not in (400, 404, 422):
            raise
        problem = str(error)
    params = {"limit": SAMPLED} | ({"event_type": event_type} if event_type else {})
    return page.render(
        "sample.html",
        title=f"Newest events of {source}",
        flow=name,
        source=source,
        event_type=event_type,
        watched=watched,
        events=[(each, record_lines(each)) for each in events],
        problem=problem,
        curl=page.curl_profiles(f"/v1/sources/{source}/events", **params),
    )


@router.post(LIST + "/{name}/{act}")
def act(page: SignedIn, fields: OwnFields, name: Name, act: Act) -> Response:
    """Pause or resume it."""
    reason = fields.get("reason", "").strip()
    page.on_refusal(_page, name, reason=reason)
    page.ask("POST", "flows", name, act, body={"reason": reason})
    return see_other(f"{LIST}/{name}", done=act)


def _page(page: OwnPage, name: str, status: int = 200, **context: Any) -> Response:
    flow = page.ask("GET", "flows", name)
    history = flow["report"].get("history", [])
    moments = [each["at_ms"] for each in history]
    return page.render(
        "flow.html",
        status,
        title=name,
        flow=flow,
        report=flow["report"],
        charts={figure: chart(moments, [each[figure] for each in history]) for figure in CHARTED},
        now_ms=time.time() * 1000,
        curl=page.curl_profiles(f"/v1/flows/{name}"),
        **context,
    )


class Chart(NamedTuple):
    """`line` and `area` are paths within `width` by `height`; the figure goes from 0 to `most`."""

    line: str
    area: str
    width: int
    height: int
    least: float
    most: float
    minutes: int


def chart(moments: Sequence[int], values: Sequence[float | None]) -> Chart | None:
    """Of values at moments in epoch milliseconds, the oldest first; None where there are not two."""
    known = [(at, value) for at, value in zip(moments, values, strict=True) if value is not None]
    if len(known) < 2:
        return None
    first, last = known[0][0], known[-1][0]
    most = max(value for _, value in known)
    usual = min(after[0] - before[0] for before, after in pairwise(known)) or 1

    def place(at: int, value: float) -> tuple[float, float]:
        along = (at - first) / max(1, last - first)
        up = value / most if most else 0.0
        return round(along * WIDTH, 1), round(HEIGHT - EDGE - up * (HEIGHT - 2 * EDGE), 1)

    parts: list[list[tuple[float, float]]] = [[]]
    before = first
    for at, value in known:
        if at - before > LONGEST_GAP * usual:
            parts.append([])
        parts[-1].append(place(at, value))
        before = at
    lines = ["M" + " L".join(f"{x} {y}" for x, y in part) for part in parts]
    areas = [
        f"{line} L{part[-1][0]} {HEIGHT} L{part[0][0]} {HEIGHT}Z"
        for line, part in zip(lines, parts, strict=True)
    ]
    least = min(value for _, value in known)
    minutes = max(1, round((last - first) / 60_000))
    return Chart(" ".join(lines), " ".join(areas), WIDTH, HEIGHT, least, most, minutes)
