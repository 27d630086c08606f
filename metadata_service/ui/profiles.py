"""One profile, as the profile service shows it to the person who is signed in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Request, Response

from idgraph.model import paths
from idgraph.model.callers import Scope
from idgraph.model.errors import ProfileServiceError
from idgraph.model.identifiers import HASHED_PREFIX
from idgraph.web.path_values import path_value
from metadata_service.ui.link_picture import link_picture
from metadata_service.ui.page import OwnPage, SignedIn, items_of

router = APIRouter()

LIST = "/ui/profiles"
NOTHING_EXPLAINED: dict[str, list[Any]] = {
    name: [] for name in ("accepted", "refused", "identifiers", "values", "decisions")
}
DECIDED: dict[str, Literal["linked", "unlinked", "taken back"]] = {
    "always": "linked",
    "never": "unlinked",
    "none": "taken back",
}


async def _named(request: Request, identifier: Annotated[str, Path()]) -> str:  # noqa: ARG001 - read as it was sent
    return path_value(request, 3)


Named = Annotated[str, Depends(_named)]
"""The identifier in the path."""


class HistoryEntry(NamedTuple):
    """What happened to a person at a moment: a decision on a pair, or a fragment that came from one profile to another."""

    at: str
    kind: Literal["linked", "unlinked", "taken back", "merged", "split", "moved"]
    pair: Sequence[str]
    who: str = ""
    why: str = ""


class ShownValue(NamedTuple):
    """A leaf of a profile: its path below the group, where it came from, and what lost."""

    path: str
    name: str
    value: Any
    is_sealed: bool
    kind: str
    origin: dict[str, Any] | None
    lost: list[dict[str, Any]]
    """Values of the person's other fragments, each with where it came from."""


def search_page(page: OwnPage, /, status: int = 200, **context: Any) -> Response:
    """The search, with what was typed, what is wrong, or a page of what was found."""
    return page.render(
        "profiles.html",
        status,
        title="Profiles",
        has_service=page.request.app.state.profile_source is not None,
        has_access=page.session.profiles_token is not None,
        **context,
    )


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
        return search_page(page, 404, missing=identifier)
    is_officer = Scope.PRIVACY in page.rights.scopes
    with page.profiles() as client:
        explained, consents, history = (
            items_of(client, "profiles", identifier, part) for part in ("explain", "consents", "history")
        )
        households = items_of(client, "profiles", identifier, "households") if is_officer else []
        answer = client.call("GET", "profiles", identifier) if tab == "json" else None
    links = explained[0] if explained else NOTHING_EXPLAINED
    own = links["identifiers"]
    kind, _, value = (identifier if _is_shown(found, identifier) else found["id"]).partition(":")
    params = {} if answer else {"provenance": "true"}
    return page.render(
        "profile.html",
        title=kind if value.startswith(HASHED_PREFIX) else f"{kind}:{value}",
        type=kind,
        value=value,
        profile=found,
        groups=_groups(found, {each["path"]: each["lost"] for each in links["values"]}),
        sources=sorted({origin["source"] for origin in found["provenance"].values()}),
        asked=identifier,
        links=links,
        picture=link_picture(identifier, own, links["accepted"], links["refused"]) if own else None,
        consents=consents,
        households=households,
        history=_history(history, links["decisions"]),
        answer=json.dumps(answer, indent=2, ensure_ascii=False) if answer else "",
        may_reveal=page.rights.may_reveal,
        may_erase=is_officer,
        curl=page.curl_profiles(f"/v1/profiles/{quote(identifier, safe=':')}", **params),
    )


def _history(parts: list[dict[str, Any]], decisions: list[dict[str, Any]]) -> list[HistoryEntry]:
    """Decisions, merges and splits, the latest first."""
    found = [
        HistoryEntry(
            each["at"], DECIDED[each["decision"]], each["pair"], each.get("who", ""), each.get("why", "")
        )
        for each in decisions
    ]
    for part in parts:
        for before, after in pairwise(part["periods"]):
            kind: Literal["merged", "split", "moved"] = (
                "merged"
                if before["profile"] == part["fragment"]
                else "split"
                if after["profile"] == part["fragment"]
                else "moved"
            )
            found.append(HistoryEntry(after["from"], kind, (before["profile"], after["profile"])))
    return sorted(found, key=lambda each: each.at, reverse=True)


def _is_shown(profile: dict[str, Any], name: str) -> bool:
    return any(f"{each['type']}:{each['value']}" == name for each in profile["identifiers"])


def look_up(page: OwnPage, identifier: str) -> dict[str, Any] | Response | None:
    """The profile of an identifier. None where the profile service shows this person nobody; a page where it cannot be asked."""
    if not page.can_ask:
        return search_page(page, 403 if page.request.app.state.profile_source else 503)
    try:
        with page.profiles() as client:
            return client.lookup(identifier, provenance=True)
    except ProfileServiceError as error:
        return failed_search(page, identifier, error)


def failed_search(page: OwnPage, typed: str, error: ProfileServiceError) -> Response:
    """The search with what was typed and what is wrong: with it, or with the service."""
    if error.status in (401, 403):
        return search_page(page, 403, typed=typed, is_refused=True)
    if error.status in (400, 422):
        return search_page(page, 422, typed=typed, problem=str(error).partition(": ")[2] or str(error))
    return search_page(page, 503, typed=typed, away=str(error))


def _groups(
    profile: dict[str, Any], lost: dict[str, list[dict[str, Any]]]
) -> list[tuple[str, list[ShownValue]]]:
    """The values by their first key."""
    groups: dict[str, list[ShownValue]] = {}
    for path, value in leaves_of(profile["attributes"]):
        keys = paths.split(path)
        is_sealed = isinstance(value, dict)
        origin = profile["provenance"].get(path)
        name = paths.join(keys[1:]) or path
        shown = ShownValue(path, name, value, is_sealed, keys[-1], origin, lost.get(path, []))
        groups.setdefault(keys[0], []).append(shown)
    return sorted(groups.items())


def leaves_of(tree: dict[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, Any]]:
    """The values of nested attributes by path."""
    found: list[tuple[str, Any]] = []
    for key, value in tree.items():
        if isinstance(value, dict) and value.get("$protected") is not True:
            found += leaves_of(value, (*above, key))
        else:
            found.append((paths.join((*above, key)), value))
    return found
