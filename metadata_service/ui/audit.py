"""Audit: the history of the metadata with its chain, and for privacy officers the profile service's log: who revealed what of
whom, and why."""

from __future__ import annotations

from typing import Annotated, Any, Literal, get_args
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Response

from idgraph.model.callers import Scope
from metadata_service.api.routes import policies as api
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
ACTIONS = (
    *("reveal", "refused reveal", "access request", "download", "erasure", "consent", "person token"),
    *("pin", "start", "cancel", "pause flow", "resume flow"),
)


@router.get(AUDIT)
def show(
    page: SignedIn, paging: Paging, kind: Kind | Literal[""] = "", subject: Text = "", who: Text = ""
) -> Response:
    """The history, the newest first."""
    return _metadata(page, paging, kind, subject, who)


@router.post(AUDIT)
def verify(page: SignedIn, fields: OwnFields, paging: Paging) -> Response:
    """Check the chain, and show the newest of the history."""
    del fields
    page.require("POST", "/v1/changes/verify")
    return _metadata(page, paging, report=api.verify(page.service))


def _metadata(
    page: OwnPage,
    paging: Paging,
    kind: Kind | Literal[""] = "",
    subject: str = "",
    who: str = "",
    report: Any = None,
) -> Response:
    page.require("GET", "/v1/changes")
    asked = {"kind": kind, "subject": subject, "actor": who}
    params = {name: value for name, value in asked.items() if value}
    return page.render(
        "audit.html",
        title="Audit",
        page=api.list_log(page.service, paging, kind or None, subject or None, who or None),
        kinds=get_args(Kind),
        asked=asked,
        is_filtered=bool(params),
        sees_reveals=Scope.PRIVACY in page.rights.scopes,
        report=report,
        may_verify=page.may("POST", "/v1/changes/verify"),
        curl=page.curl("/v1/changes", **params),
    )


@router.get(PROFILES)
def show_profiles(
    page: SignedIn,
    action: Text = "",
    who: Text = "",
    profile: Annotated[list[str], Query(max_length=50)] = [],  # noqa: B006 - never changed
    cursor: Cursor = None,
) -> Response:
    """A page of the profile service's log, the newest first. `profile` are hashes."""
    return _profiles(page, {"action": action, "who": who, "profile": profile, "cursor": cursor})


@router.post(PROFILES)
def find(page: SignedIn, fields: OwnFields) -> Response:
    """What was done to a person: the identifier is in no address, its hashes are."""
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
    params = {name: value for name, value in asked.items() if value}
    return page.render(
        "profile_audit.html",
        status,
        title="Audit",
        page=page.ask("GET", "audit", params=params | {"limit": 50}),
        asked=asked,
        is_filtered=bool(params),
        actions=ACTIONS,
        curl=page.curl_profiles("/v1/audit", **params),
        **context,
    )
