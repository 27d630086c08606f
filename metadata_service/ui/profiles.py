"""One profile, as the profile service shows it to the person who is signed in, and its timeline: entries, with the sessions and
matches that derived attributes state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, timedelta
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import BeforeValidator

from idgraph.model import paths
from idgraph.model.behaviour import DerivedDocument
from idgraph.model.callers import Scope
from idgraph.model.errors import ProfileServiceError
from idgraph.model.identifiers import HASHED_PREFIX
from idgraph.model.stamps import epoch_ms
from idgraph.web.path_values import path_value
from metadata_service.attributes.catalogue import find_attributes
from metadata_service.behaviour import ACTIVITIES, DERIVED_ATTRIBUTES
from metadata_service.ui.frame import rfc3339
from metadata_service.ui.page import Cursor, OwnPage, SignedIn, items_of

router = APIRouter()

LIST = "/ui/profiles"
ENTRIES = 100
WIDTH = 1000
"""Width of the picture, from the oldest entry to the newest."""
LEAST_WIDTH = 6


Activities = Annotated[list[str] | None, Query(max_length=100)]
Day = Annotated[date | None, BeforeValidator(lambda typed: typed or None), Query()]
"""A form that leaves it out sends it empty."""


async def _named(request: Request, identifier: Annotated[str, Path()]) -> str:  # noqa: ARG001 - read as it was sent
    return path_value(request, 3)


Named = Annotated[str, Depends(_named)]
"""The identifier in the path."""


def address_of(profile: dict[str, Any], typed: str = "") -> str:
    """The last part of the address of a profile: what was typed, if it is shown; else an identifier in the clear."""
    names = [
        f"{each['type']}:{each['value']}"
        for each in profile["identifiers"]
        if not each["value"].startswith(HASHED_PREFIX)
    ]
    address = profile["id"] if profile["id"] in names or not names else names[0]
    return quote(typed if _is_shown(profile, typed) else address, safe=":")


@router.get(LIST + "/{identifier}")
def show(page: SignedIn, identifier: Named, tab: Literal["values", "json"] = "values") -> Response:
    """One person; with `tab=json` as the profile service answers."""
    found = look_up(page, identifier)
    if isinstance(found, Response):
        return found
    if found is None:
        return page.render("profiles.html", 404, missing=identifier)
    with page.profiles() as client:
        explained, consents = (items_of(client, "profiles", identifier, x) for x in ("explain", "consents"))
        history = client.call("GET", "profiles", identifier, "history")
        is_officer = Scope.PRIVACY in page.rights.scopes
        households = items_of(client, "profiles", identifier, "households") if is_officer else []
        answer = client.call("GET", "profiles", identifier) if tab == "json" else None
    decided = {(each["purpose"], each["event"]) for each in consents}
    links: dict[str, Any] = explained[0] if explained else {}
    groups = [(group, leaves_of({group: tree})) for group, tree in sorted(found["attributes"].items())]
    with page.database.read() as reading:
        known = find_attributes(reading, [path for _, leaves in groups for path, _ in leaves])
        times = {each.path: each.time for each in known if each.time is not None}
    return page.render(
        "profile.html",
        times=times,
        profile=found,
        shown=shown_name(found, identifier),
        groups=[(group, leaves) for group, leaves in groups if leaves],
        lost={each["path"]: each["lost"] for each in links.get("values", [])},
        asked=identifier,
        links=links,
        consents=consents,
        lost_consents=[
            each for each in history["consents"] if (each["purpose"], each["event"]) not in decided
        ],
        households=households,
        history=_history(history["items"], history["decisions"]),
        answer=json.dumps(answer, indent=2, ensure_ascii=False) if answer else "",
    )


def _history(parts: list[dict[str, Any]], decisions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Decisions, with whether they are `in_force`, and moves of a `fragment` from one profile to another, the latest first."""
    moves = [
        {"at": after["from"], "fragment": part["fragment"], "pair": (before["profile"], after["profile"])}
        for part in parts
        for before, after in pairwise(part["periods"])
    ]
    found = sorted(decisions + moves, key=lambda each: str(each["at"]), reverse=True)
    decided = set()
    for each in found:
        # The newest decision on a pair is in force.
        pair = tuple(sorted(each["pair"])) if "decision" in each else None
        if pair is not None and pair not in decided:
            decided.add(pair)
            each["in_force"] = each["decision"] != "none"
    return found


def shown_name(profile: dict[str, Any], identifier: str) -> str:
    """The name of a profile on its pages: the identifier that was asked for, where it is one that shows."""
    return identifier if _is_shown(profile, identifier) else str(profile["id"])


def _is_shown(profile: dict[str, Any], name: str) -> bool:
    return any(f"{each['type']}:{each['value']}" == name for each in profile["identifiers"])


def look_up(page: OwnPage, identifier: str) -> dict[str, Any] | Response | None:
    """The profile of an identifier. None where the profile service shows this person nobody; a page where it cannot be asked."""
    if not page.can_ask:
        return page.render("profiles.html", 403 if page.request.app.state.profile_source else 503)
    try:
        with page.profiles() as client:
            return client.lookup(identifier, provenance=True)
    except ProfileServiceError as error:
        return None if error.status == 409 else failed_search(page, identifier, error)


def failed_search(page: OwnPage, typed: str, error: ProfileServiceError) -> Response:
    """The search with what was typed and what is wrong: with it, or with the service."""
    if error.status in (401, 403):
        return page.render("profiles.html", 403, typed=typed, is_refused=True)
    if error.status in (400, 422):
        return page.render("profiles.html", 422, typed=typed, problem=error.detail or str(error))
    return page.render("profiles.html", 503, typed=typed, away=str(error))


def leaves_of(tree: dict[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, Any]]:
    """The values of nested attributes by path."""
    found: list[tuple[str, Any]] = []
    for key, value in tree.items():
        if isinstance(value, dict) and value.get("$protected") is not True:
            found += leaves_of(value, (*above, key))
        else:
            found.append((paths.join((*above, key)), value))
    return found


class Lane(NamedTuple):
    """One row of the picture: entries of an activity, each of no length, or the sessions or matches of a derived attribute. `parts`
    have begin, width and text."""

    name: str
    kind: Literal["entry", "session", "match"]
    parts: Sequence[tuple[float, float, str]] = ()


@router.get(LIST + "/{identifier}/timeline")
def show_timeline(
    page: SignedIn,
    identifier: Named,
    activity: Activities = None,
    since: Day = None,
    until: Day = None,
    cursor: Cursor = None,
) -> Response:
    """The newest entries: of some activities, from one day to another (both in UTC), or behind a cursor."""
    profile = look_up(page, identifier)
    if isinstance(profile, Response):
        return profile
    if profile is None:
        return page.render("profiles.html", 404, missing=identifier)
    chosen = [each for each in activity or () if each]
    asked: dict[str, Any] = {"activity": chosen} if chosen else {}
    asked |= {} if since is None else {"since": _begin(since)}
    asked |= {} if until is None else {"until": _begin(until + timedelta(days=1))}
    entries: dict[str, Any] = {"items": [], "next": None}
    spans: list[dict[str, Any]] = []
    problem = ""
    try:
        with page.profiles() as client:
            params = asked | {"limit": ENTRIES} | ({"cursor": cursor} if cursor else {})
            entries = client.call("GET", "profiles", identifier, "timeline", params=params)
            if items := entries["items"]:
                # Those that reach into the time of the entries of this page.
                period = {"since": items[-1]["time"], "until": items[0]["time"] + 1}
                spans = items_of(client, "profiles", identifier, "timeline", "spans", **asked | period)
    except ProfileServiceError as error:
        if error.status not in (400, 422):
            raise
        problem = error.detail or str(error)
    activities, derived = _definitions(page)
    return page.render(
        "timeline.html",
        422 if problem else 200,
        asked=identifier,
        shown=shown_name(profile, identifier),
        page=entries,
        lanes=_lanes(entries["items"], spans),
        spans=spans,
        figures=list(_figures(derived, profile, chosen)),
        activities=activities,
        chosen=chosen,
        since=since,
        until=until,
        parameters=asked,
        problem=problem,
    )


def _begin(day: date) -> int:
    return epoch_ms(datetime(day.year, day.month, day.day, tzinfo=UTC))


def _definitions(page: OwnPage) -> tuple[list[str], list[DerivedDocument]]:
    """The activities to choose from, and the derived attributes, as far as the person may read the catalogue."""
    if not page.may("GET", f"/v1/{DERIVED_ATTRIBUTES.path}"):
        return [], []
    with page.database.read() as reading:
        return [each.name for each in ACTIVITIES.active(reading)], list(DERIVED_ATTRIBUTES.active(reading))


def _value(attributes: Any, path: str) -> Any:
    for key in paths.split(path):
        attributes = attributes.get(key) if isinstance(attributes, dict) else None
    return attributes


def _figures(
    derived: Sequence[DerivedDocument], profile: dict[str, Any], chosen: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """The windows that have a value, with whether all entries that count are kept; of these activities, if some are named."""
    for each in derived:
        value = _value(profile["attributes"], each.path)
        is_chosen = not chosen or not set(chosen).isdisjoint(each.activities)
        if each.window is not None and value is not None and is_chosen:
            origin = profile["provenance"].get(each.path, {})
            yield {"definition": each, "value": value, "complete": origin.get("complete", True)}


def _lanes(entries: Sequence[dict[str, Any]], spans: Sequence[dict[str, Any]]) -> list[Lane]:
    """The picture of a time, from its oldest entry to its newest."""
    begin = min((each["time"] for each in entries), default=0)
    end = max((each["time"] for each in entries), default=0)
    length = max(end - begin, 1)

    def x(time: int) -> float:
        return round(WIDTH * (min(max(time, begin), end) - begin) / length, 1)

    lanes: dict[tuple[str, Any], list[tuple[float, float, str]]] = {}
    for each in entries:
        parts = lanes.setdefault((each["activity"], "entry"), [])
        parts.append((x(each["time"]), 0, rfc3339(each["time"])))
    for each in spans:
        # A session of one entry has no length, and shows.
        width = max(x(each["end"]) - x(each["begin"]), LEAST_WIDTH)
        text = f"{rfc3339(each['begin'])} to {rfc3339(each['end'])}"
        parts = lanes.setdefault((each["derived"], each["kind"]), [])
        parts.append((round(min(x(each["begin"]), WIDTH - width), 1), round(width, 1), text))
    order = ("entry", "session", "match")
    return [
        Lane(name, kind, parts)
        for (name, kind), parts in sorted(lanes.items(), key=lambda each: (order.index(each[0][1]), each[0]))
    ]
