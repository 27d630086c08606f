"""One profile, as the profile service shows it to the person who is signed in."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path as FilePath
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Depends, Path, Request, Response

from idgraph.client import AsyncProfilesClient, ProfilesClient
from idgraph.model import paths
from idgraph.model.callers import Caller, Scope
from idgraph.model.errors import ProfileServiceError
from idgraph.model.identifiers import HASHED_PREFIX
from idgraph.web.path_values import path_value
from metadata_service.storage.sessions import Session
from metadata_service.ui.link_picture import link_picture
from metadata_service.ui.page import SignedIn, curl, render

router = APIRouter()

LIST = "/ui/profiles"
SECONDS = 5.0
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


class ProfileSource(NamedTuple):
    """Where the profile service is."""

    url: str
    ca_file: FilePath | None = None
    allow_plain_http: bool = False

    def client(self, token: str, seconds: float = SECONDS) -> ProfilesClient:
        """Asks with somebody's own token."""
        return ProfilesClient(
            self.url, token, seconds, ca_file=self.ca_file, allow_plain_http=self.allow_plain_http
        )

    def async_client(self, token: str) -> AsyncProfilesClient:
        """The same for asyncio."""
        return AsyncProfilesClient(
            self.url, token, SECONDS, ca_file=self.ca_file, allow_plain_http=self.allow_plain_http
        )


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


def search_page(request: Request, session: Session, status: int = 200, **context: Any) -> Response:
    """The search, with what was typed, what is wrong, or a page of what was found."""
    shown = {"typed": "", "missing": None, "problem": None, "is_refused": False, "away": "", "page": None}
    source = request.app.state.profile_source
    return render(
        request,
        "profiles.html",
        session,
        status,
        title="Profiles",
        has_service=source is not None,
        has_access=session.profiles_token is not None,
        **shown | {"sort": "", "columns": [], "warnings": [], "corrected": None} | context,
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
def show(
    request: Request, session: SignedIn, identifier: Named, tab: Literal["values", "json"] = "values"
) -> Response:
    """One person; with `tab=json` as the profile service answers."""
    found = look_up(request, session, identifier)
    if isinstance(found, Response):
        return found
    if found is None:
        return search_page(request, session, 404, missing=identifier)
    rights = profiles_rights(session)
    is_officer = Scope.PRIVACY in rights.scopes
    with profiles_client(request, session) as client:
        explained, consents, history = (
            _part(client, identifier, part) for part in ("explain", "consents", "history")
        )
        households = _memberships(client, identifier) if is_officer else []
        answer = client.call("GET", "profiles", identifier) if tab == "json" else None
    links = explained[0] if explained else NOTHING_EXPLAINED
    own = links["identifiers"]
    root = identifier if identifier in own else own[0] if own else ""
    kind, _, value = (identifier if _is_shown(found, identifier) else found["id"]).partition(":")
    sources = sorted({origin["source"] for origin in found["provenance"].values()})
    params = {} if answer else {"provenance": "true"}
    return render(
        request,
        "profile.html",
        session,
        title=kind if value.startswith(HASHED_PREFIX) else f"{kind}:{value}",
        type=kind,
        value=value,
        profile=found,
        groups=_groups(found, {each["path"]: each["lost"] for each in links["values"]}),
        sources=sources,
        asked=identifier,
        links=links,
        picture=link_picture(root, own, links["accepted"], links["refused"]) if own else None,
        consents=consents,
        households=households,
        history=_history(history, links["decisions"]),
        answer=json.dumps(answer, indent=2, ensure_ascii=False) if answer else "",
        may_reveal=rights.may_reveal,
        may_erase=is_officer,
        curl=curl(profiles_source(request).url, f"/v1/profiles/{quote(identifier, safe=':')}", **params),
    )


def _part(client: ProfilesClient, identifier: str, part: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.call("GET", "profiles", identifier, part)["items"]
    return found


def _memberships(client: ProfilesClient, identifier: str) -> list[dict[str, Any]]:
    try:
        return _part(client, identifier, "households")
    except ProfileServiceError as error:
        if error.status != 422:
            raise
        return []  # The profile service keeps none.


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


def profiles_rights(session: Session) -> Caller:
    """What the profile service lets the person do."""
    return session.caller.caller("", None)


def profiles_source(request: Request) -> ProfileSource:
    """Where the profile service is. Raises ProfileServiceError where there is none."""
    source: ProfileSource | None = request.app.state.profile_source
    if source is None:
        raise ProfileServiceError("no profile service is configured ([profiles] url)", 503)
    return source


def profiles_client(request: Request, session: Session, seconds: float = SECONDS) -> ProfilesClient:
    """Asks with the person's own token. Raises ProfileServiceError where there is no service, or no token."""
    source = profiles_source(request)
    if session.profiles_token is None:
        raise ProfileServiceError("your session has no token of the role profiles", 403)
    return source.client(session.profiles_token, seconds)


def look_up(request: Request, session: Session, identifier: str) -> dict[str, Any] | Response | None:
    """The profile of an identifier. None where the profile service shows this person nobody; a page where it cannot be asked."""
    if request.app.state.profile_source is None:
        return search_page(request, session, 503)
    if session.profiles_token is None:
        return search_page(request, session, 403)
    try:
        with profiles_client(request, session) as client:
            return client.lookup(identifier, provenance=True)
    except ProfileServiceError as error:
        if error.status == 400:
            return search_page(request, session, 422, problem="An identifier is written type:value.")
        if error.status in (401, 403):
            return search_page(request, session, 403, is_refused=True)
        raise


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
