"""Models of derived attributes: the list, with those that use each, and a form that adds one."""

from __future__ import annotations

from fastapi import APIRouter, Response

from idgraph.web.cursors import PageRequest
from metadata_service.api.routes import models as api
from metadata_service.ui.page import FIRST, OwnFile, OwnPage, Paging, SignedIn, Text, reason_of, see_other

router = APIRouter()


@router.get("/ui/models")
def list_models(page: SignedIn, paging: Paging, added: Text = "") -> Response:
    """By digest."""
    page.require("GET", "/v1/models")
    return _page(page, paging, added=added)


@router.post("/ui/models")
def add(page: SignedIn, content: OwnFile, name: Text = "", reason: Text = "") -> Response:
    """Keep a file."""
    page.require("POST", "/v1/models")
    page.on_refusal(_page, FIRST, name=name, reason=reason)
    why = reason_of({"reason": reason}, is_needed=True)
    made = api.add(page.service, page.caller.name, Response(), content, name.strip()[:200], why)
    return see_other("/ui/models", added=made.digest)


def _page(page: OwnPage, paging: PageRequest, status: int = 200, **context: str) -> Response:
    found = api.list_(page.service, paging)
    return page.render("models.html", status, page=found, **context)
