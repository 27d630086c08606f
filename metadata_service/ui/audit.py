"""Audit: the history of the metadata with its chain, and for privacy officers the profile service's log: who revealed what of
whom, and why."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Response

from idgraph.web.cursors import PageRequest
from metadata_service.api.routes import documents as api
from metadata_service.storage.edits import Kind
from metadata_service.ui.page import (
    START_SECONDS,
    Cursor,
    OwnFields,
    OwnPage,
    Paging,
    SignedIn,
    Text,
    see_other,
)

router = APIRouter()

AUDIT = "/ui/audit"
PROFILES = "/ui/audit/profiles"


@router.get(AUDIT)
def show(
    page: SignedIn, paging: Paging, kind: Kind | Literal[""] = "", subject: Text = "", who: Text = ""
) -> Response:
    """The history, the newest first."""
    asked = {"kind": kind, "subject": subject, "actor": who}
    return _metadata(page, paging, {name: value for name, value in asked.items() if value})


@router.post(AUDIT)
def verify(page: SignedIn, fields: OwnFields, paging: Paging) -> Response:
    """Check the chain, and show the newest of the history."""
    del fields
    page.require("POST", "/v1/changes/verify")
    return _metadata(page, paging, {}, report=api.verify(page.service))


def _metadata(page: OwnPage, paging: PageRequest, asked: dict[str, Any], **context: Any) -> Response:
    page.require("GET", "/v1/changes")
    found = api.list_log(page.service, paging, **asked)
    return page.render("audit.html", page=found, kinds=get_args(Kind), asked=asked, **context)


@router.get(PROFILES)
def show_profiles(
    page: SignedIn,
    action: Text = "",
    who: Text = "",
    profile: Annotated[list[str], Query(max_length=50)] = [],  # noqa: B006 - never changed
    cursor: Cursor = None,
) -> Response:
    """A page of the profile service's log, the newest first. `profile` are hashes."""
    asked = {"action": action, "who": who, "profile": profile, "cursor": cursor}
    return _profiles(page, {name: value for name, value in asked.items() if value})


@router.post(PROFILES)
def find(page: SignedIn, fields: OwnFields) -> Response:
    """Acts on a person: the address has hashes of the identifier, never the identifier."""
    page.on_refusal(_profiles, {})
    asked = {"profile": fields.get("of", "").strip(), "limit": 1}
    hashes = page.ask("GET", "audit", params=asked)["profiles"]
    return see_other(f"{PROFILES}?{urlencode({'profile': hashes}, doseq=True)}")


@router.post(PROFILES + "/verify")
def verify_profiles(page: SignedIn, fields: OwnFields) -> Response:
    """Check the chain of that log."""
    del fields
    return _profiles(page, {}, report=page.ask("POST", "audit", "verify", seconds=START_SECONDS))


def _profiles(page: OwnPage, asked: dict[str, Any], status: int = 200, **context: Any) -> Response:
    found = page.ask("GET", "audit", params=asked | {"limit": 50})
    return page.render("profile_audit.html", status, page=found, asked=asked, **context)
