"""Mapping Specs: the list, one with all its versions and which one is in force, and the editor with what the spec makes
of a sample event."""

from __future__ import annotations

import json
from contextlib import suppress
from itertools import count
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path, Response
from pydantic import ValidationError

from idgraph.model import canonical
from idgraph.model.callers import Scope
from idgraph.model.documents import NAME_PATTERN
from idgraph.model.errors import ProfileServiceError, SpecError
from idgraph.model.specs import SpecCase, SpecDefinition, SpecDocument, SpecStatus
from idgraph.web.conditional import etag_of, precondition
from idgraph.web.cursors import PageRequest
from idgraph.web.refusals import RefusedRequestError
from metadata_service.api.routes import specs as api
from metadata_service.attributes.policy_changes import pending_changes
from metadata_service.documents.problems import DocumentError, JsonFile, Problem
from metadata_service.documents.reading import read_definition_text
from metadata_service.documents.writing import difference, spec_text
from metadata_service.specs import catalogue
from metadata_service.specs.cases import STAND_INS
from metadata_service.specs.catalogue import SPECS
from metadata_service.specs.health import unmapped, uses_of
from metadata_service.specs.vocabulary import CompletionList, WordKind
from metadata_service.storage.versions import list_changes
from metadata_service.ui.dead_letters import newest_of, sample_of
from metadata_service.ui.page import (
    FIRST,
    Number,
    OwnFields,
    OwnPage,
    Paging,
    SignedIn,
    Text,
    reason_of,
    said,
    see_other,
)
from metadata_service.ui.sources import missing_source

router = APIRouter()

LIST = "/ui/specs"
KEPT = ("reason", "sample", "etag")
"""Fields that the editor keeps beside the text."""
Name = Annotated[str, Path(pattern=NAME_PATTERN)]


@router.get(LIST)
def list_specs(
    page: SignedIn, paging: Paging, q: Text = "", sort: Literal["name", "-name"] = "name"
) -> Response:
    """By name."""
    page.require("GET", "/v1/specs")
    found = api.list_(page.service, paging, q, sort)
    with page.database.read() as reading:
        active = {each.name: each.active_version for each in found.items if each.active_version is not None}
        uses, without_spec = uses_of(reading, active), unmapped(reading)
    return page.render("specs.html", page=found, uses=uses, unmapped=without_spec, q=q, sort=sort)


@router.get("/ui/completions")
def complete(page: SignedIn, kind: WordKind, q: Text = "") -> CompletionList:
    """Completions for the editor."""
    page.require("GET", "/v1/completions")
    return api.complete(page.service, kind, q, 50)


@router.get(LIST + "/{name}/edit")
def edit(
    page: SignedIn,
    name: Name,
    saved: bool = False,
    dead_letter: Text = "",
    case: bool = False,
    move: Text = "",
    into: Text = "",
) -> Response:
    """The editor, with the draft if there is one, else with the version in force, else with the latest; with the record of a
    dead letter as the sample, as its reader may see it; `case` says how it becomes a test case. With `move`, operations are
    drafted that put `into` another path what is there."""
    page.require("PUT", f"/v1/specs/{name}")
    with page.database.read() as reading:
        record = catalogue.get_spec(reading, name)
        base = record.document
        # After a roll back the latest is what nobody wants.
        if base.status is SpecStatus.RETIRED and record.active_version is not None:
            base = catalogue.get_spec_version(reading, name, record.active_version)
    draft = spec_text(base, "status")
    etag = etag_of(record.model_dump_json())
    shown: dict[str, Any] = {"is_saved": saved, "base": base, "is_case": case, "etag": etag}
    if move:
        stated = SpecDefinition(**base.model_dump(include=set(SpecDefinition.model_fields)))
        try:
            wish = api.SpecMove(definition=stated, path=move, into=into.strip())
            draft, shown["moved"] = spec_text(api.move(wish, page.service), "status"), (move, into)
        except (SpecError, ValidationError) as error:
            said = error if isinstance(error, SpecError) else "name the other path"
            shown["problem"] = f"Nothing was moved: {said}."
    sample = sample_of(page, dead_letter) if dead_letter else ""
    return show_editor(page, name, draft, sample=sample, **shown)


@router.post(LIST + "/{name}/edit")
def edit_again(page: SignedIn, name: Name, fields: OwnFields) -> Response:
    """The editor, with a draft that is not saved. By `act` the sample becomes a test case of it, or the newest event that the
    source has becomes the sample."""
    page.require("PUT", f"/v1/specs/{name}")
    kept: dict[str, Any] = {each: fields.get(each, "") for each in KEPT}
    if "text" not in fields:
        # The draft was saved a moment ago, from sample events.
        first = read_events(fields.get("events", ""))[:1]
        sample = json.dumps(first[0], indent=2, ensure_ascii=False) if first else ""
        return show_editor(page, name, None, **kept | {"sample": sample, "is_saved": True})
    text = fields["text"]
    try:
        match fields.get("act"):
            case "case":
                text, kept["made"] = _with_case(page, name, text, kept["sample"])
            case "newest":
                definition, _ = read_definition_of(name, text)
                event_type = "" if "*" in definition.event_type else definition.event_type
                kept["sample"] = newest_of(page, definition.source, event_type)
    except (DocumentError, SpecError, RefusedRequestError, ProfileServiceError) as error:
        return show_editor(page, name, text, 422, problem=said(error), **kept)
    return show_editor(page, name, text, **kept)


def _with_case(page: OwnPage, name: str, text: str, sample: str) -> tuple[str, SpecCase]:
    """Raises DocumentError, SpecError, RefusedRequestError."""
    definition, _ = read_definition_of(name, text)
    payload = read_payload(sample)
    if payload is None:
        raise RefusedRequestError("a test case is made of a sample event, and there is no sample event")
    known = {each.name for each in definition.cases}
    number = next(each for each in count(len(known) + 1) if f"case {each}" not in known)
    wish = api.CaseWish(definition=definition, payload=payload, name=f"case {number}")
    made = api.new_case(wish, page.service)
    return spec_text(definition.model_copy(update={"cases": (*definition.cases, made)}), "status"), made


def show_editor(
    page: OwnPage, name: str, text: str | None, status: int = 200, etag: str = "", **context: Any
) -> Response:
    """With this text, whatever is saved; else with what is saved."""
    with page.database.read() as reading:
        record = catalogue.get_spec(reading, name)
    base: SpecDocument = context.setdefault("base", record.document)
    saved = spec_text(base, "status")
    text = saved if text is None else text
    theirs = difference(saved, text) if status == 412 else None
    shown = context | {"record": record, "text": text, "saved": saved, "theirs": theirs}
    shown["missing"] = missing_source(page, *_events_of(text, base))
    return page.render("spec_editor.html", status, etag=etag or etag_of(record.model_dump_json()), **shown)


def _events_of(text: str, base: SpecDocument) -> tuple[str, str]:
    """The source and the event type that a text says; those of the saved spec where it cannot be read."""
    try:
        definition, _ = read_definition_text(text)
    except DocumentError:
        return base.source, base.event_type
    return definition.source, definition.event_type


@router.post(LIST + "/{name}/check")
def check(page: SignedIn, name: Name, fields: OwnFields) -> Response:
    """Called as one types: nothing is stored. The problems of the draft with their lines, and what it makes of the sample."""
    page.require("POST", "/v1/specs/check")
    text = fields.get("text", "")
    shown: dict[str, Any] = {"is_checked": True}
    try:
        definition, shown["warnings"] = read_definition_of(name, text)
        payload = read_payload(fields.get("sample", ""))
        checked = api.check_only(definition, page.service)
        shown["cases"] = checked.cases
        shown["warnings"] += [Problem(1, 1, "", each, None) for each in checked.warnings]
        if payload is not None:
            tried = api.SpecPreview(definition=definition, payload=payload)
            shown["preview"] = api.preview(tried, page.service)
            shown["has_hidden"] = f'"{STAND_INS["text"]}"' in fields.get("sample", "")
    except DocumentError as error:
        shown |= {"problems": error.problems, "warnings": error.warnings}
    except SpecError as error:
        shown["problems"] = [JsonFile.of_text(text).locate(error)]
    except RefusedRequestError as error:
        shown["sample_problem"] = error.message
    return page.render("spec_result.html", **shown)


def read_definition_of(name: str, text: str) -> tuple[SpecDefinition, list[Problem]]:
    """The spec of the text. Raises DocumentError."""
    definition, warnings = read_definition_text(text)
    if definition.name != name:
        refused = SpecError(f"this page edits the spec {name}; another name is another spec", "/name")
        raise JsonFile.of_text(text).refuse([refused])
    return definition, warnings


def read_payload(sample: str) -> dict[str, Any] | None:
    """A payload that somebody typed; None for nothing. Raises RefusedRequestError."""
    if not sample.strip():
        return None
    try:
        json.loads(sample)  # its messages name the line
        payload = canonical.decode(sample)
    except json.JSONDecodeError as error:
        raise RefusedRequestError(f"line {error.lineno}: not JSON: {error.msg}") from None
    except (*canonical.MalformedJSON, ValueError):
        raise RefusedRequestError("not JSON as events have it") from None
    if not isinstance(payload, dict):
        raise RefusedRequestError("the payload of an event is an object, written in braces")
    return payload


def read_events(text: str) -> list[dict[str, Any]]:
    """Payloads: JSON Lines, one object, or an array of them. Raises RefusedRequestError."""
    try:
        whole = canonical.decode(text)
    except (*canonical.MalformedJSON, ValueError):
        whole = None
    if isinstance(whole, dict | list):
        return whole if isinstance(whole, list) else [whole]
    events = []
    for number, line in enumerate(text.split("\n"), 1):
        try:
            payload = read_payload(line)
        except RefusedRequestError as error:
            raise RefusedRequestError(f"line {number}: {error.message.removeprefix('line 1: ')}") from None
        events += [] if payload is None else [payload]
    return events


@router.post(LIST + "/{name}/publish")
def publish(page: SignedIn, name: Name, fields: OwnFields) -> Response:
    """Save a version, as a draft or in force. A conflict shows both versions, and keeps what was typed."""
    page.require("PUT", f"/v1/specs/{name}")
    text, is_draft = fields.get("text", ""), fields.get("act") == "draft"
    page.on_refusal(show_editor, name, text, **{each: fields.get(each, "") for each in KEPT})
    reason = reason_of(fields, is_needed=True)
    definition, _ = read_definition_of(name, text)
    stated = definition.model_copy(update={"status": SpecStatus.DRAFT if is_draft else SpecStatus.ACTIVE})
    check, may_fail = precondition(fields.get("etag", "")), "allow_failing_cases" in fields
    answer = api.put(name, stated, page.service, page.caller, check, reason, may_fail)
    if answer.status_code == 202:
        # The page of the spec says what waits for a second person.
        return see_other(f"{LIST}/{name}")
    if is_draft:
        return see_other(f"{LIST}/{name}/edit", saved="true")
    return see_other(f"{LIST}/{name}", published="true")


@router.get(LIST + "/{name}")
def show(
    page: SignedIn,
    name: Name,
    paging: Paging,
    version: Number = None,
    against: Number = None,
    published: bool = False,
) -> Response:
    """One version (the one in force, if none is named), its difference to another (the one before), and all versions."""
    page.require("GET", f"/v1/specs/{name}")
    return _page(page, name, version, against=against, paging=paging, published=published)


def _page(
    page: OwnPage,
    name: str,
    version: int | None,
    status: int = 200,
    against: int | None = None,
    paging: PageRequest = FIRST,
    **context: Any,
) -> Response:
    with page.database.read() as reading:
        record = catalogue.get_spec(reading, name)
        number = version or record.active_version or record.latest_version
        shown = SPECS.at(reading, number, name)
        other = against or number - 1
        compared = catalogue.get_spec_version(reading, name, other) if other else None
        versions = SPECS.versions(reading, paging, name)
        waiting = pending_changes(reading, "spec", name)
        changes = list_changes(reading, PageRequest(None, 200), "spec", name).items
    text = spec_text(shown.document, "status")
    if context.get("published"):
        context["missing"] = missing_source(page, shown.document.source, shown.document.event_type)
        context["waiting_dead_letters"] = _waiting_dead_letters(page, shown.document.source)
    return page.render(
        "spec.html",
        status,
        record=record,
        shown=shown,
        versions=versions,
        waiting=waiting,
        changes=changes,
        text=text,
        other=other,
        difference=[] if compared is None else difference(spec_text(compared, "status"), text),
        etag=etag_of(record.model_dump_json()),
        **context,
    )


def _waiting_dead_letters(page: OwnPage, source: str) -> int:
    """The number of dead letters of a source that may pass by a published spec; 0 if this person cannot know."""
    if "*" in source or not page.can_ask or Scope.OPERATE not in page.rights.scopes:
        return 0
    with suppress(ProfileServiceError):
        return int(page.ask("GET", "dead-letters", params={"source": source, "limit": 1})["matching"])
    return 0


@router.post(LIST + "/{name}/activate")
def activate(page: SignedIn, name: Name, fields: OwnFields) -> Response:
    """Put a version in force: a draft, or an older one again."""
    page.require("POST", f"/v1/specs/{name}/status")
    number = fields.get("version", "")
    if not number.isdecimal() or not 0 < int(number) < 2**31:
        raise RefusedRequestError("the form names no version")
    page.on_refusal(_page, name, int(number), reason=fields.get("reason", ""))
    change = api.StatusChange(
        status=SpecStatus.ACTIVE,
        version=int(number),
        reason=reason_of(fields, is_needed=True),
        allow_failing_cases="allow_failing_cases" in fields,
    )
    check = precondition(fields.get("etag", ""))
    answer = api.set_status(name, change, page.service, page.caller.name, check)
    return see_other(f"{LIST}/{name}", **({"published": "true"} if answer.status_code == 200 else {}))
