"""One profile, as the profile service shows it to the person who is signed in."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Annotated, Any, Literal
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Request, Response

from idgraph.model import paths
from idgraph.model.callers import Scope
from idgraph.model.errors import ProfileServiceError
from idgraph.model.identifiers import HASHED_PREFIX
from idgraph.web.path_values import path_value
from metadata_service.ui.page import OwnPage, SignedIn, items_of

router = APIRouter()

LIST = "/ui/profiles"


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
    groups = ((group, leaves_of({group: tree})) for group, tree in sorted(found["attributes"].items()))
    return page.render(
        "profile.html",
        profile=found,
        shown=identifier if _is_shown(found, identifier) else found["id"],
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
