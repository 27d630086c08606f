"""Sandboxes: the list, one of them compared with production, its promotion and its end."""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Response

from idgraph.model.sandboxes import NAME_OF_SANDBOX, NewSandbox, SandboxItem, SandboxPromotion
from idgraph.web.refusals import RefusedRequestError
from metadata_service.api.routes import sandboxes as api
from metadata_service.documents.writing import difference
from metadata_service.ui.page import OwnFields, OwnPage, SignedIn, Text, Watching, reason_of, see_other

router = APIRouter()

PAGE = "/ui/sandboxes"
API = "/v1/sandboxes"
Name = Annotated[str, Path(pattern=NAME_OF_SANDBOX)]


@router.get(PAGE)
def show(
    page: SignedIn,
    q: Text = "",
    sort: Literal["name", "-name"] = "name",
    sel: Text = "",
    done: Literal["", "made", "deleted"] = "",
) -> Response:
    """All, and one of them compared with production."""
    return _page(page, sel, q=q, sort=sort, done=done)


@router.get(PAGE + "/{name}/activity")
def show_activity(page: Watching, name: Name) -> Response:
    """Stores and running flows of both sides; the page asks for them by itself."""
    page.require("GET", f"{API}/{name}/activity")
    return page.render("sandbox_activity.html", name=name, activity=api.activity(name, page.service))


@router.post(PAGE)
def create(page: SignedIn, fields: OwnFields) -> Response:
    """Copy what is in force."""
    page.require("POST", API)
    stated = {"name": fields.get("name", "").strip(), "reason": fields.get("reason", "").strip()}
    page.on_refusal(_page, typed=stated)
    api.create(NewSandbox.model_validate(stated), page.service, page.caller.name)
    return see_other(PAGE, sel=stated["name"], done="made")


@router.post(PAGE + "/{name}")
def act(page: SignedIn, name: Name, fields: OwnFields) -> Response:
    """Promote the chosen documents, or delete the sandbox by its typed name."""
    reason = reason_of(fields)
    page.on_refusal(_page, name, reason=reason)
    if fields.get("act") == "delete":
        page.require("DELETE", f"{API}/{name}")
        if fields.get("typed", "").strip() != name:
            raise RefusedRequestError(f"Type the name {name} to delete it: nothing was deleted.")
        api.delete(name, page.service, page.caller.name, reason)
        return see_other(PAGE, done="deleted")
    page.require("POST", f"{API}/{name}/promote")
    try:
        chosen = [json.loads(value) for field, value in fields.items() if field.startswith("item-")]
        items = [SandboxItem.model_validate(each) for each in chosen]
    except ValueError:
        raise RefusedRequestError("The form cannot be read; try again.") from None
    page.on_refusal(_page, name, reason=reason, chosen=items)
    if not (items and reason):
        raise RefusedRequestError(
            "Choose the items to publish, and give a reason: it is kept with each version."
        )
    promoted = api.promote(name, SandboxPromotion(items=items, reason=reason), page.service, page.caller)
    return _page(page, name, promoted=promoted.items)


def _page(
    page: OwnPage,
    sel: str = "",
    status: int = 200,
    q: str = "",
    sort: Literal["name", "-name"] = "name",
    **context: Any,
) -> Response:
    page.require("GET", API)
    compared = api.comparison(sel, page.service) if sel else None
    items = compared.items if compared else ()
    return page.render(
        "sandboxes.html",
        status,
        q=q,
        sort=sort,
        sel=sel,
        found=api.list_(page.service, q, sort).items,
        compared=compared,
        lines=[difference(_text(each.production), _text(each.sandbox)) for each in items],
        **context,
    )


def _text(document: dict[str, Any] | None) -> str:
    return "" if document is None else json.dumps(document, indent=2, ensure_ascii=False)
