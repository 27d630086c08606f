"""Dead Letters: what was set aside and why, one record as its reader may see it, and the replay or the end of some or of all
that match."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Query, Request, Response

from idgraph.model.dead_letters import DeadLetterReason
from metadata_service.specs.cases import stood_in
from metadata_service.ui.jobs import LIST as JOBS
from metadata_service.ui.page import START_SECONDS, OwnFields, OwnPage, SignedIn, see_other

router = APIRouter()

LIST = "/ui/dead-letters"
SCAN_SECONDS = 30.0
FILTERS = ("reason", "source", "stage", "file", "spec", "since", "until")
TIMES = ("since", "until")
_AGO = re.compile(r"([0-9]{1,4}) ?([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class Filter(NamedTuple):
    """The typed text by field, the request to the service, and the faults by field."""

    typed: dict[str, str]
    wanted: dict[str, str]
    problems: dict[str, str]


def _filter(page: OwnPage) -> Filter:
    """A field that is wrong is left out."""
    query = page.request.query_params
    found = Filter({name: query.get(name, "").strip()[:300] for name in FILTERS}, {}, {})
    for name, value in found.typed.items():
        if not value:
            continue
        moment = _moment(value, datetime.now(UTC)) if name in TIMES else value
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
    page: SignedIn,
    cursor: Annotated[str | None, Query(max_length=1000)] = None,
    dropped: Annotated[int | None, Query(ge=0, lt=2**53)] = None,
) -> Response:
    """The list, the newest first, with groups. A fault of the filter is shown at its field. `dropped`: the number just
    dropped."""
    asked = _filter(page)
    params = asked.wanted | {"limit": 50} | ({"cursor": cursor} if cursor else {})
    found = page.ask("GET", "dead-letters", params=params, seconds=SCAN_SECONDS)
    reasons = sorted(DeadLetterReason)
    shown: dict[str, Any] = {"asked": asked, "params": params, "reasons": reasons, "dropped": dropped}
    return page.render("dead_letters.html", page=found, **shown)


async def _act(request: Request) -> str:
    return request.url.path.rpartition("/")[2]


Act = Annotated[str, Depends(_act)]
"""`replay` or `drop`, as the path ends."""


@router.get(LIST + "/replay")
@router.get(LIST + "/drop")
def ask(
    page: SignedIn,
    act: Act,
    ids: Annotated[list[str] | None, Query(max_length=1000, alias="id")] = None,
    chosen: bool = False,
) -> Response:
    """The number that would be replayed or dropped, and the field for the reason. An empty choice does not mean all."""
    if chosen and not ids:
        nothing: dict[str, Any] = {"act": act, "preview": {"count": 0}, "choice": {}, "is_unchosen": True}
        return page.render("dead_letter_act.html", **nothing)
    wanted = _filter(page).wanted
    if act == "drop":
        # Nobody saw the dead letters that are set aside from now on.
        wanted.setdefault("until", datetime.now(UTC).isoformat(timespec="milliseconds"))
    return _decide(page, act, _choice(ids or [], wanted))


@router.post(LIST + "/replay")
@router.post(LIST + "/drop")
def decide(page: SignedIn, act: Act, fields: OwnFields) -> Response:
    """Start the replay, whose page says what became of them; or drop them."""
    wanted = {name: fields[name] for name in FILTERS if fields.get(name)}
    choice, why = _choice(fields.get("ids", "").split(), wanted), fields.get("why", "").strip()
    page.on_refusal(_decide, act, choice, why=why)
    done = page.ask("POST", "dead-letters", act, body=choice | {"reason": why}, seconds=START_SECONDS)
    if act == "drop":
        return see_other(LIST, dropped=str(done["dropped"]))
    return see_other(f"{JOBS}/{done['id']}", done="started")


def _choice(ids: list[str], wanted: dict[str, str]) -> dict[str, Any]:
    return {"ids": ids} if ids else {"filter": wanted}


def _decide(page: OwnPage, act: str, choice: dict[str, Any], status: int = 200, **context: Any) -> Response:
    preview = page.ask("POST", "dead-letters", "replay", "preview", body=choice, seconds=SCAN_SECONDS)
    return page.render("dead_letter_act.html", status, act=act, preview=preview, choice=choice, **context)


@router.get(LIST + "/{dead_letter}")
def show(page: SignedIn, dead_letter: str) -> Response:
    """One dead letter with its record."""
    letter = page.ask("GET", "dead-letters", dead_letter, seconds=SCAN_SECONDS)
    return page.render("dead_letter.html", letter=letter)


def newest_of(page: OwnPage, source: str, event_type: str) -> str:
    """The newest event of a source, as `sample_of`; empty where there is none. Raises ProfileServiceError."""
    found = newest_events(page, source, event_type, 1)
    return _sample(found[0]["payload"]) if found and found[0]["payload"] is not None else ""


def newest_events(page: OwnPage, source: str, event_type: str, most: int) -> list[dict[str, Any]]:
    """As policy and the reader's clearance show them. Raises ProfileServiceError."""
    params = {"limit": most} | ({"event_type": event_type} if event_type else {})
    found = page.ask("GET", "sources", source, "events", params=params, seconds=SCAN_SECONDS)
    return list(found["items"])


def sample_of(page: OwnPage, dead_letter: str) -> str:
    """The record of a dead letter as a sample event: something of the same type stands for each sealed value."""
    return _sample(page.ask("GET", "dead-letters", dead_letter, seconds=SCAN_SECONDS)["payload"])


def _sample(payload: Any) -> str:
    return json.dumps(stood_in(payload, by_form=True), indent=2, ensure_ascii=False)
