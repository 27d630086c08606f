"""Review: links that the rules refused, by cause, and pairs that a model suggests, each with what a decision would do."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Query, Response

from idgraph.client import ProfilesClient
from idgraph.model import paths
from idgraph.model.callers import Scope
from idgraph.model.identifiers import HASHED_PREFIX
from idgraph.model.identity_rules import IdentityRules
from idgraph.web.refusals import ForbiddenError
from metadata_service.identity_rules import RULES
from metadata_service.ui.deciding import LinkPin
from metadata_service.ui.frame import is_time
from metadata_service.ui.page import Cursor, OwnFields, OwnPage, Polled, SignedIn, Text, see_other
from metadata_service.ui.profiles import leaves_of

router = APIRouter()

LIST = "/ui/review/violations"
SUGGESTIONS = "/ui/review/suggestions"
PAGE = 25
LONGEST_SECONDS = 30.0
MOST_CLAIMANTS = 20
MOST_VALUES = 10
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_HUMAN = re.compile(
    r"name|first|last|full|given|family|middle|surname|firstname|lastname|birth|birthday|birthdate|dob|age|gender|sex|title|email|mail"
    r"|phone|mobile|address|street|line|city|town|region|state|postal|zip|postcode|country|company|employer|job|language"
)
_PASSING = re.compile(
    r"activity|events?|session|device|cart|anonymous|platform|version|library|ids?|ip|agent|search|view|product|page"
)


@router.get(LIST)
def violations(
    page: Polled,
    cursor: Cursor = None,
    sel: Annotated[int, Query(ge=0)] = 0,
    looked: Annotated[int, Query(ge=0, le=2**53)] = 0,
    stop: bool = False,
) -> Response:
    """A page of groups, and one of them. Most profiles have no refused link, and a call ends after a second: an empty page
    goes on by itself until it is stopped. `looked`: the number of profiles looked through before."""
    params = {"limit": PAGE} | ({"cursor": cursor} if cursor else {})
    shown: dict[str, Any] = {"params": params, "stop": stop, "pin": LinkPin}
    with page.profiles(LONGEST_SECONDS) as client:
        found = client.call("GET", "links", "violations", params=params)
        if found["items"]:
            # In the order of their weight; the service has them in the order of its store.
            found["items"].sort(
                key=lambda each: (-len(each["refused"]) - len(each["rivals"]), each["identifier"])
            )
            sel = min(sel, len(found["items"]) - 1)
            shown |= _claims(page, client, found["items"][sel])
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


class Claimant(NamedTuple):
    """A person who claims the identifier of a group: the name of the profile that says most, the identifiers `by` which
    it is claimed (the first one has most evidence), their links, whether the rules refuse it to this person, and the
    values that compare persons."""

    name: str
    by: list[str]
    links: list[dict[str, Any]]
    is_refused: bool
    values: dict[str, Any]


def _claims(page: OwnPage, client: ProfilesClient, group: dict[str, Any]) -> dict[str, Any]:
    """The persons who claim the identifier of a group: first its owner, then those with most evidence; `compared` are
    the paths of their differing values."""
    links = {_other(group, each): each for each in (*group["accepted"], *group["refused"])}
    refused = {_other(group, each) for each in group["refused"]}
    names = list(dict.fromkeys((*group["rivals"], *links)))[:MOST_CLAIMANTS]
    profiles = dict(zip(names, client.lookups(names), strict=True))
    persons: dict[str, list[str]] = defaultdict(list)
    for name in names:
        found = profiles[name]
        persons[found["id"] if found else name].append(name)
    with page.database.read() as reading:
        rules = RULES.get(reading)
    claimants = []
    for own in persons.values():
        profile = profiles[own[0]]
        by = sorted(_counted(group, own), key=lambda each: -_weight(links.get(each)))
        values = dict(leaves_of(profile["attributes"])) if profile else {}
        named = _names_of(profile, rules) if profile else own
        shown = [links[each] for each in by if each in links]
        claimants.append(Claimant(named[0], by, shown, not refused.isdisjoint(own), values))
    claimants.sort(key=lambda each: (each.is_refused, -sum(map(_weight, each.links)), each.name))
    return {"claimants": claimants, "compared": list(compared([each.values for each in claimants]))}


def _weight(link: dict[str, Any] | None) -> int:
    return len(link["evidence"]) if link else 0


def _names_of(profile: dict[str, Any], rules: IdentityRules) -> list[str]:
    """The identifiers of a profile, those that say most of a person first: readable ones of the highest priority."""

    def order(each: dict[str, str]) -> tuple[bool, int, str]:
        priority = rules.namespace(each["type"]).priority
        return each["value"].startswith(HASHED_PREFIX), priority, each["value"]

    return [f"{each['type']}:{each['value']}" for each in sorted(profile["identifiers"], key=order)] or [
        profile["id"]
    ]


def compared(values: list[dict[str, Any]]) -> Iterator[str]:
    """Paths by which people compare persons: names, birthdays, addresses and the like first, then others that differ;
    what only says when or where something happened last. Protected values are among them, sealed."""
    known = {path for each in values for path in each}
    often = {path: sum(path in each for each in values) for path in known}

    def order(path: str) -> tuple[int, int, int, str]:
        words = [word.lower() for word in _WORD.findall(path)]
        is_passing = is_time(path) or any(map(_PASSING.fullmatch, words))
        kind = 2 if is_passing else 0 if any(map(_HUMAN.fullmatch, words)) else 1
        return kind, -often[path], len(paths.split(path)), path

    found = 0
    for path in sorted(known, key=order):
        is_human = order(path)[0] == 0
        differs = len({repr(each.get(path)) for each in values}) > 1
        if found < MOST_VALUES and (is_human or (often[path] > 1 and differs)):
            found += 1
            yield path


def _counted(group: dict[str, Any], names: Iterable[str]) -> list[str]:
    """Those of the types that the rule counts, where it names any: the others are refused with them."""
    types = group["rule"].partition(":")[2].split("+")
    distinct = list(dict.fromkeys(names))
    return [each for each in distinct if each.partition(":")[0] in types] or distinct


def _other(group: dict[str, Any], link: dict[str, Any]) -> str:
    one, other = map(str, link["pair"])
    return other if one == group["identifier"] else one
