"""Dead Letters: what was set aside and why, one record as its reader may see it, and the replay of some or of all that match."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Request, Response

from idgraph.model.dead_letters import DeadLetterReason
from idgraph.model.errors import ProfileServiceError
from metadata_service.specs.cases import stood_in
from metadata_service.storage.sessions import Session
from metadata_service.ui.jobs import LIST as JOBS
from metadata_service.ui.jobs import START_SECONDS
from metadata_service.ui.page import OwnFields, SignedIn, curl, may, render, see_other
from metadata_service.ui.profiles import profiles_client, profiles_source

router = APIRouter()

LIST = "/ui/dead-letters"
PAGE = 50
SCAN_SECONDS = 30.0
FILTERS = ("reason", "source", "stage", "spec", "since", "until")
TIMES = ("since", "until")
_AGO = re.compile(r"([0-9]{1,4}) ?([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}
Text = Annotated[str, Query(max_length=300)]


class Filter(NamedTuple):
    """What was typed, by field; what the service is asked for; and what is wrong, by field."""

    typed: dict[str, str]
    wanted: dict[str, str]
    problems: dict[str, str]


def _filter(typed: dict[str, str], now: datetime) -> Filter:
    """A field that is wrong is left out."""
    found = Filter({name: typed.get(name, "").strip() for name in FILTERS}, {}, {})
    for name, value in found.typed.items():
        if not value:
            continue
        moment = _moment(value, now) if name in TIMES else value
        if moment is None:
            found.problems[name] = "Write 30m, 24h or 7d for a time ago, or a time such as 2026-03-01T10:00Z."
        elif name == "reason" and value not in set(DeadLetterReason):
            found.problems[name] = "There is no such reason."
        else:
            found.wanted[name] = moment
    return found


def _moment(text: str, now: datetime) -> str | None:
    """A time, in RFC 3339; UTC where none is said. None for what is none."""
    try:
        if ago := _AGO.fullmatch(text):
            return (now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})).isoformat(timespec="seconds")
        moment = datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return None
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).isoformat()


@router.get(LIST)
def show_list(
    request: Request,
    session: SignedIn,
    reason: Text = "",
    source: Text = "",
    stage: Text = "",
    spec: Text = "",
    since: Text = "",
    until: Text = "",
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
) -> Response:
    """The list, the newest first, with groups. What is wrong in the filter is said at its field."""
    given = (reason, source, stage, spec, since, until)
    asked = _filter(dict(zip(FILTERS, given, strict=True)), datetime.now(UTC))
    params = asked.wanted | {"limit": PAGE} | ({"cursor": cursor} if cursor else {})
    with profiles_client(request, session, SCAN_SECONDS) as client:
        page = client.call("GET", "dead-letters", params=params)
    return render(
        request,
        "dead_letters.html",
        session,
        title="Dead Letters",
        page=page,
        asked=asked,
        reasons=sorted(DeadLetterReason),
        replay_all=f"{LIST}/replay?{urlencode(asked.wanted)}",
        curl=curl(profiles_source(request).url, "/v1/dead-letters", **params),
    )


@router.get(LIST + "/replay")
def ask_replay(
    request: Request,
    session: SignedIn,
    ids: Annotated[list[str] | None, Query(max_length=1000, alias="id")] = None,
) -> Response:
    """How many would be replayed, and the question why."""
    asked = _filter(dict(request.query_params), datetime.now(UTC))
    return _replay(request, session, _choice(ids or [], asked.wanted))


@router.post(LIST + "/replay")
def replay(request: Request, session: SignedIn, fields: OwnFields) -> Response:
    """Start the replay; its page says what became of them."""
    wanted = {name: fields[name] for name in FILTERS if fields.get(name)}
    choice, why = _choice(fields.get("ids", "").split(), wanted), fields.get("why", "").strip()
    try:
        with profiles_client(request, session, START_SECONDS) as client:
            job = client.call("POST", "dead-letters", "replay", body=choice | {"reason": why})
    except ProfileServiceError as error:
        if error.status not in (404, 409, 422):
            raise
        return _replay(request, session, choice, error.status, problem=str(error), why=why)
    return see_other(f"{JOBS}/{job['id']}", done="started")


def _choice(ids: list[str], wanted: dict[str, str]) -> dict[str, Any]:
    return {"ids": ids} if ids else {"filter": wanted}


def _replay(
    request: Request, session: Session, choice: dict[str, Any], status: int = 200, **context: Any
) -> Response:
    with profiles_client(request, session, SCAN_SECONDS) as client:
        preview = client.call("POST", "dead-letters", "replay", "preview", body=choice)
    return render(
        request,
        "dead_letter_replay.html",
        session,
        status,
        title="Replay dead letters",
        preview=preview,
        choice=choice,
        **{"problem": None, "why": ""} | context,
    )


@router.get(LIST + "/{dead_letter}")
def show(request: Request, session: SignedIn, dead_letter: str) -> Response:
    """One dead letter with its record."""
    with profiles_client(request, session, SCAN_SECONDS) as client:
        found = client.call("GET", "dead-letters", dead_letter)
    name = (found["spec"] or "").partition("@")[0]
    is_sample = isinstance(found["payload"], dict) and name and may(session, "PUT", f"/v1/specs/{name}")
    return render(
        request,
        "dead_letter.html",
        session,
        title=found["position"],
        letter=found,
        spec=name,
        lines=record_lines(found),
        editor=f"/ui/specs/{name}/edit?{urlencode({'dead_letter': dead_letter})}" if is_sample else None,
        curl=curl(profiles_source(request).url, f"/v1/dead-letters/{quote(dead_letter, safe='')}"),
    )


def record_lines(found: dict[str, Any]) -> list[Line]:
    """A record as it is shown."""
    return list(_lines(found["payload"], set(found.get("cause", ())), found["becomes"]))


def newest_of(request: Request, session: Session, source: str, event_type: str) -> str:
    """The newest event of a source, as `sample_of`; empty where there is none. Raises ProfileServiceError."""
    found = newest_events(request, session, source, event_type, 1)
    if found and found[0]["payload"] is not None:
        return json.dumps(stood_in(found[0]["payload"]), indent=2, ensure_ascii=False)
    return ""


def newest_events(
    request: Request, session: Session, source: str, event_type: str, most: int
) -> list[dict[str, Any]]:
    """As policy and the reader's clearance show them. Raises ProfileServiceError."""
    params = {"limit": most} | ({"event_type": event_type} if event_type else {})
    with profiles_client(request, session, SCAN_SECONDS) as client:
        found: list[dict[str, Any]] = client.call("GET", "sources", source, "events", params=params)["items"]
    return found


def sample_of(request: Request, session: Session, dead_letter: str) -> str:
    """The record of a dead letter as a sample event: something of the same type stands for each sealed value."""
    with profiles_client(request, session, SCAN_SECONDS) as client:
        found = client.call("GET", "dead-letters", dead_letter)
    return json.dumps(stood_in(found["payload"]), indent=2, ensure_ascii=False)


class Line(NamedTuple):
    """A line of a record: what stands before a value, the value as JSON, or the kind of one that is sealed, and what follows
    it. `becomes` are the attributes of the value."""

    before: str
    value: Any
    sealed: str | None
    after: str
    becomes: list[str]
    is_cause: bool

    @property
    def has_value(self) -> bool:
        return self.value is not _NOTHING


_NOTHING = object()


def _lines(
    value: Any,
    causes: set[str],
    becomes: dict[str, list[str]],
    place: str = "",
    before: str = "",
    end: str = "",
) -> Iterator[Line]:
    is_cause = place in causes
    if isinstance(value, dict) and value.get("$protected") is True:
        yield Line(before, _NOTHING, str(value.get("type")), end, becomes.get(place, []), is_cause)
    elif isinstance(value, dict | list) and value:
        first, last = "{}" if isinstance(value, dict) else "[]"
        yield Line(before + first, _NOTHING, None, "", [], is_cause)
        indent = " " * (len(before) - len(before.lstrip())) + "  "
        items = list(value.items() if isinstance(value, dict) else enumerate(value))
        for number, (key, below) in enumerate(items, start=1):
            named = f"{json.dumps(key, ensure_ascii=False)}: " if isinstance(value, dict) else ""
            below_place = f"{place}/{str(key).replace('~', '~0').replace('/', '~1')}"
            comma = "," if number < len(items) else ""
            yield from _lines(below, causes, becomes, below_place, indent + named, comma)
        yield Line(indent[2:] + last + end, _NOTHING, None, "", [], False)
    else:
        yield Line(before, value, None, end, becomes.get(place, []), is_cause)
