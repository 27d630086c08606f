"""Sandboxes: the list, one of them compared with production, its promotion and its end."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import ValidationError

from idgraph.model.errors import IdgraphError, MetadataError
from idgraph.model.sandboxes import (
    NAME_OF_SANDBOX,
    NewSandbox,
    SandboxComparison,
    SandboxItem,
    SandboxPromotion,
)
from idgraph.web.problems import STATUS
from metadata_service.api.routes import sandboxes as api
from metadata_service.api.service import Service
from metadata_service.documents.writing import Row, difference
from metadata_service.storage.sessions import Session
from metadata_service.ui.page import OwnFields, SignedIn, Watching, curl, may, render, require, see_other

router = APIRouter()

PAGE = "/ui/sandboxes"
API = "/v1/sandboxes"
Text = Annotated[str, Query(max_length=100)]
Name = Annotated[str, Path(pattern=NAME_OF_SANDBOX)]


@router.get(PAGE)
def show(
    request: Request,
    session: SignedIn,
    service: Service,
    q: Text = "",
    sort: Literal["name", "-name"] = "name",
    sel: Text = "",
    done: Literal["", "made", "deleted"] = "",
) -> Response:
    """All, and one of them compared with production."""
    return _page(request, session, service, q=q, sort=sort, sel=sel, done=done)


@router.get(PAGE + "/{name}/activity")
def show_activity(request: Request, session: Watching, service: Service, name: Name) -> Response:
    """What is stored and runs on both sides, which the page asks for by itself."""
    require(session, "GET", f"{API}/{name}/activity")
    found = api.activity(name, service)
    return render(request, "sandbox_activity.html", session, name=name, activity=found)


@router.post(PAGE)
def create(request: Request, session: SignedIn, service: Service, fields: OwnFields) -> Response:
    """Copy what is in force."""
    require(session, "POST", API)
    stated = {"name": fields.get("name", "").strip(), "reason": fields.get("reason", "").strip()}
    try:
        api.create(NewSandbox.model_validate(stated), service, session.caller.name)
    except ValidationError:
        refusal = "A name has lower-case letters, digits and dashes, at most 40, and a reason at most 1,000."
        return _page(request, session, service, 422, problem=refusal, typed=stated)
    except MetadataError as error:
        return _page(request, session, service, _status(error), problem=str(error), typed=stated)
    return see_other(PAGE, sel=stated["name"], done="made")


@router.post(PAGE + "/{name}")
def act(request: Request, session: SignedIn, service: Service, name: Name, fields: OwnFields) -> Response:
    """Promote what is chosen, or delete the sandbox by its typed name."""
    reason = fields.get("reason", "").strip()[:1000]
    kept: dict[str, Any] = {"sel": name, "reason": reason}
    if fields.get("act") == "delete":
        require(session, "DELETE", f"{API}/{name}")
        if fields.get("typed", "").strip() != name:
            refusal = f"Type the name {name} to delete it: nothing was deleted."
            return _page(request, session, service, 422, problem=refusal, **kept)
        api.delete(name, service, session.caller.name, reason)
        return see_other(PAGE, done="deleted")
    require(session, "POST", f"{API}/{name}/promote")
    try:
        items = [
            SandboxItem.model_validate(json.loads(value))
            for field, value in fields.items()
            if field.startswith("item-")
        ]
        kept["chosen"] = items
        if not (items and reason):
            refusal = "Choose what to publish, and say why: the reason is kept with each version."
            return _page(request, session, service, 422, problem=refusal, **kept)
        wanted = SandboxPromotion(items=items, reason=reason)
        promoted = api.promote(name, wanted, service, session.caller).items
    except ValueError:
        return _page(request, session, service, 422, problem="The form cannot be read; try again.", **kept)
    except MetadataError as error:
        return _page(request, session, service, _status(error), problem=str(error), **kept)
    return _page(request, session, service, sel=name, promoted=promoted)


def _page(
    request: Request, session: Session, service: Service, status: int = 200, **context: Any
) -> Response:
    require(session, "GET", API)
    shown: dict[str, Any] = {"q": "", "sort": "name", "sel": "", "done": "", "problem": "", "reason": ""}
    shown |= {"promoted": (), "chosen": None, "typed": {"name": "", "reason": ""}} | context
    found = api.list_(service, shown["q"], shown["sort"]).items
    compared = api.comparison(shown["sel"], service) if shown["sel"] else None
    path = API if compared is None else f"{API}/{shown['sel']}/comparison"
    return render(
        request,
        "sandboxes.html",
        session,
        status,
        title="Sandboxes",
        found=found,
        compared=compared,
        lines=_lines(compared),
        has_some=service.settings.sandboxes is not None,
        may_make=may(session, "POST", API),
        may_promote=may(session, "POST", f"{API}/a/promote"),
        may_delete=may(session, "DELETE", f"{API}/a"),
        curl=curl(str(request.base_url), path),
        **shown,
    )


def _lines(compared: SandboxComparison | None) -> list[list[Row]]:
    """What differs of each, line by line."""
    return [
        difference(*(_text(each) for each in (one.production, one.sandbox)))
        for one in (compared.items if compared else ())
    ]


def _text(document: dict[str, Any] | None) -> str:
    return "" if document is None else json.dumps(document, indent=2, ensure_ascii=False)


def _status(error: IdgraphError) -> int:
    return next((STATUS[kind] for kind in type(error).__mro__ if kind in STATUS), 422)
