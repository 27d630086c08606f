"""The links that make identifiers one person, and decisions on them: each shows its effect before its button works."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import quote

from fastapi import APIRouter, Query, Response

from idgraph.client import ProfilesClient
from idgraph.model.callers import Scope
from idgraph.model.errors import ProfileServiceError
from idgraph.web.refusals import RefusedRequestError
from metadata_service.ui.page import Number, OwnFields, SignedIn, local_path
from metadata_service.ui.profiles import LIST, Named

router = APIRouter()

NEVER, NONE = "never", "none"


class LinkPin(NamedTuple):
    """A decision on two identifiers, as forms have it."""

    one: str
    other: str
    decision: str

    @property
    def field(self) -> str:
        """The value of its field."""
        return json.dumps(self)

    @property
    def undone(self) -> LinkPin:
        """The decision that takes this one back."""
        return self._replace(decision=NONE)

    def body(self) -> dict[str, Any]:
        return {"pair": [self.one, self.other], "decision": self.decision}


class DecisionEffect(NamedTuple):
    """The effects of decisions: `pins` that are asked for, further ones that were `offered` since a link would join
    next, each with the rule that keeps it apart today and whether it is `chosen`, and the answer of the profile
    service."""

    pins: list[LinkPin]
    offered: list[tuple[LinkPin, str, bool]]
    change: dict[str, Any]

    @property
    def decided(self) -> list[LinkPin]:
        """All that the button decides."""
        return self.pins + [pin for pin, _, is_chosen in self.offered if is_chosen]

    @property
    def previewed(self) -> str:
        return previewed(self.decided)


def previewed(pins: Iterable[LinkPin]) -> str:
    """The decisions that a form has shown, as text."""
    return json.dumps(sorted(pins))


def effect_of(
    client: ProfilesClient, pins: list[LinkPin], chosen: Iterable[LinkPin] | None = None
) -> DecisionEffect:
    """Raises ProfileServiceError. Without a choice, all that would join next is pinned too."""
    first = _preview(client, pins)
    offered = _joining(first)
    chosen = offered if chosen is None else chosen
    chosen = [each for each in dict.fromkeys(chosen) if each not in pins]
    last = _preview(client, [*pins, *chosen]) if chosen else first
    offered |= _joining(last) | {each: offered.get(each, "") for each in chosen}
    return DecisionEffect(pins, [(each, rule, each in chosen) for each, rule in offered.items()], last)


def _preview(client: ProfilesClient, pins: Iterable[LinkPin]) -> dict[str, Any]:
    found = client.call("POST", "links", "preview", body={"pins": [each.body() for each in pins]})
    return dict(found)


def _joining(change: Mapping[str, Any]) -> dict[LinkPin, str]:
    return {LinkPin._make((*each["pair"], NEVER)): each.get("rule") or "" for each in change["joining"]}


@router.get(LIST + "/{identifier}/explain")
def explain(
    page: SignedIn,
    named: Named,
    other: Annotated[str, Query(alias="with", max_length=4096)] = "",
    cut: Number = None,
) -> Response:
    """The picture of a person's links; with another identifier, the path to it and what unlinking would do."""
    effect = None
    with page.profiles() as client:
        params = {"with": other} if other else {}
        found = client.call("GET", "profiles", named, "explain", params=params)["items"][0]
        path = found.get("path") or []
        if path and cut is None:
            cut = next((number for number, each in enumerate(path) if each["splits"]), 0)
        chosen = path[cut] if path and cut is not None and cut < len(path) else None
        if chosen is not None and Scope.LINKS in page.rights.scopes:
            effect = effect_of(client, [LinkPin._make((*chosen["pair"], NEVER))])
    return page.render(
        "explain.html", asked=named, other=other, found=found, path=path, cut=cut, effect=effect
    )


@router.get("/ui/links/new")
def propose(
    page: SignedIn,
    one: Annotated[str, Query(max_length=4096)],
    other: Annotated[str, Query(max_length=4096)],
    decision: Literal["always", "never", "none"] = "always",
) -> Response:
    """The effects of one decision."""
    with page.profiles() as client:
        effect = effect_of(client, [LinkPin(one, other, decision)], ())
    return page.render("decide.html", effect=effect, back=f"{LIST}/{quote(one, safe=':')}")


@router.post("/ui/links")
def decide(page: SignedIn, fields: OwnFields) -> Response:
    """Show the effects of decisions, or decide. If the evidence changed since it was shown, show it again."""
    pins, also = (_pins(fields, name) for name in ("pin-", "also-"))
    if not pins:
        raise RefusedRequestError("choose a decision")
    is_asked, reason = fields.get("act") == "decide", fields.get("reason", "").strip()
    back = local_path(fields.get("back"))
    problem = note = ""
    with page.profiles() as client:
        if is_asked and reason and fields.get("previewed") == previewed(pins + also):
            body = {"pins": [each.body() for each in pins + also], "reason": reason}
            try:
                done = client.call("POST", "links", body=body, if_match=fields.get("etag", ""))
                return page.render("decided.html", done=done, decided=pins + also, back=back)
            except ProfileServiceError as error:
                if error.status != 412:
                    raise
                note = "Evidence arrived, or somebody decided, since this was shown."
        elif is_asked and not reason:
            problem = "Say why: the reason stays with the pin. No personal data."
        elif is_asked:
            note = "Other pins are chosen than were shown."
        effect = effect_of(client, pins, also)
    status = 412 if note else 422 if problem else 200
    said = {"reason": reason, "problem": problem, "note": note}
    return page.render("decide.html", status, effect=effect, back=back, **said)


def _pins(fields: Mapping[str, str], prefix: str) -> list[LinkPin]:
    """Raises RefusedRequestError."""
    try:
        found = [
            LinkPin._make(map(str, json.loads(fields[name])))
            for name in sorted(fields)
            if name.startswith(prefix)
        ]
    except (ValueError, TypeError):
        raise RefusedRequestError("the form cannot be read") from None
    return list(dict.fromkeys(found))
