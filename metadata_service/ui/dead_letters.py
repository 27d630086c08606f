"""Dead Letters: what was set aside and why, one record as its reader may see it, and the replay of some or of all that match."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Query, Response

from idgraph.model.dead_letters import DeadLetterReason
from metadata_service.specs.cases import stood_in
from metadata_service.ui.jobs import LIST as JOBS
from metadata_service.ui.page import START_SECONDS, OwnFields, OwnPage, SignedIn, see_other

router = APIRouter()

LIST = "/ui/dead-letters"
SCAN_SECONDS = 30.0
FILTERS = ("reason", "source", "stage", "spec", "since", "until")
TIMES = ("since", "until")
_AGO = re.compile(r"([0-9]{1,4}) ?([mhd])")
_UNITS = {"m": "minutes", "h": "hours", "d": "days"}


class Filter(NamedTuple):
    """What was typed, by field; what the service is asked for; and what is wrong, by field."""

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
def show_list(page: SignedIn, cursor: Annotated[str | None, Query(max_length=1000)] = None) -> Response:
    """The list, the newest first, with groups. What is wrong in the filter is said at its field."""
    asked = _filter(page)
    params = asked.wanted | {"limit": 50} | ({"cursor": cursor} if cursor else {})
    return page.render(
        "dead_letters.html",
        title="Dead Letters",
        page=page.ask("GET", "dead-letters", params=params, seconds=SCAN_SECONDS),
        asked=asked,
        reasons=sorted(DeadLetterReason),
        replay_all=f"{LIST}/replay?{urlencode(asked.wanted)}",
        curl=page.curl_profiles("/v1/dead-letters", **params),
    )


@router.get(LIST + "/replay")
def ask_replay(
    page: SignedIn, ids: Annotated[list[str] | None, Query(max_length=1000, alias="id")] = None
) -> Response:
    """How many would be replayed, and the question why."""
    return _replay(page, _choice(ids or [], _filter(page).wanted))


@router.post(LIST + "/replay")
def replay(page: SignedIn, fields: OwnFields) -> Response:
    """Start the replay; its page says what became of them."""
    wanted = {name: fields[name] for name in FILTERS if fields.get(name)}
    choice, why = _choice(fields.get("ids", "").split(), wanted), fields.get("why", "").strip()
    page.on_refusal(_replay, choice, why=why)
    body = choice | {"reason": why}
    job = page.ask("POST", "dead-letters", "replay", body=body, seconds=START_SECONDS)
    return see_other(f"{JOBS}/{job['id']}", done="started")


def _choice(ids: list[str], wanted: dict[str, str]) -> dict[str, Any]:
    return {"ids": ids} if ids else {"filter": wanted}


def _replay(page: OwnPage, choice: dict[str, Any], status: int = 200, **context: Any) -> Response:
    preview = page.ask("POST", "dead-letters", "replay", "preview", body=choice, seconds=SCAN_SECONDS)
    title = "Replay dead letters"
    return page.render(
        "dead_letter_replay.html", status, title=title, preview=preview, choice=choice, **context
    )


@router.get(LIST + "/{dead_letter}")
def show(page: SignedIn, dead_letter: str) -> Response:
    """One dead letter with its record."""
    found = page.ask("GET", "dead-letters", dead_letter, seconds=SCAN_SECONDS)
    name = (found["spec"] or "").partition("@")[0]
    is_sample = isinstance(found["payload"], dict) and name and page.may("PUT", f"/v1/specs/{name}")
    return page.render(
        "dead_letter.html",
        title=found["position"],
        letter=found,
        spec=name,
        lines=record_lines(found),
        editor=f"/ui/specs/{name}/edit?{urlencode({'dead_letter': dead_letter})}" if is_sample else None,
        curl=page.curl_profiles(f"/v1/dead-letters/{quote(dead_letter, safe='')}"),
    )


def record_lines(found: dict[str, Any]) -> list[Line]:
    """A record as it is shown."""
    return list(_lines(found["payload"], set(found.get("cause", ())), found["becomes"]))


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
    return json.dumps(stood_in(payload), indent=2, ensure_ascii=False)


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
