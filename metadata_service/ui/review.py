"""Review: links that the rules refused, by cause, and pairs that a model suggests, each with what a decision would do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Annotated, Any

from fastapi import APIRouter, Query, Response

from idgraph.client import ProfilesClient
from idgraph.model import paths
from idgraph.model.callers import Scope
from idgraph.web.refusals import ForbiddenError
from metadata_service.ui.deciding import LinkPin
from metadata_service.ui.page import Cursor, OwnFields, OwnPage, Polled, SignedIn, Text, see_other
from metadata_service.ui.profiles import leaves_of

router = APIRouter()

LIST = "/ui/review/violations"
SUGGESTIONS = "/ui/review/suggestions"
PAGE = 25
LONGEST_SECONDS = 30.0
MOST_CLAIMANTS = 20
MOST_VALUES = 4


@router.get(LIST)
def violations(
    page: Polled,
    cursor: Cursor = None,
    sel: Annotated[int, Query(ge=0)] = 0,
    looked: Annotated[int, Query(ge=0, le=2**53)] = 0,
    stop: bool = False,
) -> Response:
    """A page of groups, and one of them. Of most profiles nothing is refused, and a call ends after a second: an empty page
    goes on by itself until it is stopped. `looked`: so much was looked through before."""
    params = {"limit": PAGE} | ({"cursor": cursor} if cursor else {})
    shown: dict[str, Any] = {"params": params, "stop": stop, "pin": LinkPin}
    with page.profiles(LONGEST_SECONDS) as client:
        found = client.call("GET", "links", "violations", params=params)
        if found["items"]:
            sel = min(sel, len(found["items"]) - 1)
            shown |= _claims(client, found["items"][sel])
    return page.render("violations.html", page=found, sel=sel, looked=looked + found["looked"], **shown)


@router.get(SUGGESTIONS)
def suggestions(page: Polled, job: Text = "", cursor: Cursor = None, stop: bool = False) -> Response:
    """A page of pairs that may be one person, of a job; without one, the form that starts it."""
    return _suggestions(page, job, cursor, typed={}, stop=stop)


@router.post(SUGGESTIONS)
def suggest(page: SignedIn, fields: OwnFields) -> Response:
    """Start the job."""
    page.on_refusal(_suggestions, typed=fields)
    lines = (line.replace(",", " ").split() for line in fields.get("blocking", "").splitlines())
    body: dict[str, Any] = {
        "attributes": fields.get("attributes", "").replace(",", " ").split(),
        "blocking": [each for each in lines if each],
        "least_weight": fields.get("least_weight") or 2,
    }
    started = page.ask("POST", "links", "suggestions", body=body, seconds=LONGEST_SECONDS)
    return see_other(SUGGESTIONS, job=str(started["id"]))


def _suggestions(
    page: OwnPage,
    job: str = "",
    cursor: str | None = None,
    status: int = 200,
    problem: str = "",
    **context: Any,
) -> Response:
    if Scope.LINKS not in page.rights.scopes:
        raise ForbiddenError("reviewing suggestions needs the scope links")
    found: dict[str, Any] | None = None
    if job:
        with page.profiles(LONGEST_SECONDS) as client:
            params = {"cursor": cursor} if cursor else {}
            found = client.call("GET", "links", "suggestions", job, params=params)
            if found["state"] == "failed":
                problem = client.call("GET", "jobs", job).get("error") or "its process ended"
    return page.render(
        "suggestions.html", status, page=found, job=job, problem=problem, pin=LinkPin, **context
    )


def _claims(client: ProfilesClient, group: dict[str, Any]) -> dict[str, Any]:
    """Who claims the identifier of a group: its `rivals`, and the `others`, whom the rules refused; both as `claimants` with the
    link, whether it is refused, and their values, of which those at the paths `telling` tell them apart."""
    joined = {_other(group, each): each for each in group["accepted"]}
    refused = {_other(group, each): each for each in group["refused"]}
    rivals, others = _counted(group, group["rivals"]), _counted(group, refused)
    links = [(each, joined.get(each, {"evidence": []}), False) for each in rivals]
    links = (links + [(each, refused[each], True) for each in others])[:MOST_CLAIMANTS]
    profiles = client.lookups([name for name, _, _ in links])
    values = [dict(leaves_of(each["attributes"])) if each else {} for each in profiles]
    claimants = [(*link, own) for link, own in zip(links, values, strict=True)]
    found = {"claimants": claimants, "telling": list(_telling(values))[:MOST_VALUES]}
    return found | {"rivals": rivals, "others": others[:MOST_CLAIMANTS]}


def _telling(values: list[dict[str, Any]]) -> Iterator[str]:
    """Paths of plain values that differ between these persons; those that most of them have first."""
    known = {path for each in values for path, value in each.items() if isinstance(value, str | int | float)}
    often = {path: sum(path in each for each in values) for path in known}
    for path in sorted(known, key=lambda each: (-often[each], len(paths.split(each)), each)):
        if often[path] > 1 and len({repr(each.get(path)) for each in values}) > 1:
            yield path


def _counted(group: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Those of the types that the rule counts, where it names any: the others are refused with them."""
    types = group["rule"].partition(":")[2].split("+")
    distinct = list(dict.fromkeys(names))
    return [each for each in distinct if each.partition(":")[0] in types] or distinct


def _other(group: dict[str, Any], link: dict[str, Any]) -> str:
    one, other = map(str, link["pair"])
    return other if one == group["identifier"] else one
