"""Mapping Specs: the list, and the editor with what the spec makes of a sample event."""

from __future__ import annotations

import json
from itertools import count
from typing import Annotated, Any, Literal, NamedTuple

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import ValidationError

from idgraph.model import canonical
from idgraph.model.callers import Scope
from idgraph.model.errors import ProfileServiceError, SpecError
from idgraph.model.records import SpecCaseRecord, SpecRecord
from idgraph.model.specs import NAME_PATTERN, SpecCase, SpecDefinition, SpecStatus
from idgraph.web.conditional import etag_of, precondition
from idgraph.web.cursors import PageRequest
from idgraph.web.refusals import ClashError, PreconditionError, RefusedRequestError
from metadata_service.api.routes import completions
from metadata_service.api.routes import specs as api
from metadata_service.api.service import MetadataService, Service
from metadata_service.documents.problems import DocumentError, JsonFile, Problem
from metadata_service.documents.reading import read_definition_text
from metadata_service.documents.writing import Row, difference, spec_text
from metadata_service.specs import catalogue
from metadata_service.specs.health import unmapped, uses_of
from metadata_service.specs.preview import PreviewRecord
from metadata_service.specs.vocabulary import CompletionList, WordKind
from metadata_service.ui.dead_letters import newest_of, sample_of
from metadata_service.ui.page import OwnFields, SignedIn, curl, may, render, require, see_other

router = APIRouter()

LIST = "/ui/specs"
Name = Annotated[str, Path(pattern=NAME_PATTERN)]


@router.get(LIST)
def list_specs(
    request: Request,
    session: SignedIn,
    service: Service,
    q: Annotated[str, Query(max_length=200)] = "",
    sort: Literal["name", "-name"] = "name",
    cursor: Annotated[str | None, Query(max_length=10_000)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = 50,
) -> Response:
    """By name."""
    require(session, "GET", "/v1/specs")
    page = api.list_(service, PageRequest(cursor, limit), q, sort)
    with service.database.read() as reading:
        active = {each.name: each.active_version for each in page.items if each.active_version is not None}
        uses, without_spec = uses_of(reading, active), unmapped(reading)
    return render(
        request,
        "specs.html",
        session,
        title="Mapping Specs",
        page=page,
        uses=uses,
        unmapped=without_spec,
        q=q,
        sort=sort,
        may_draft=may(session, "PUT", "/v1/specs/new"),
        curl=curl(str(request.base_url), "/v1/specs", **dict(request.query_params.items())),
    )


@router.get("/ui/completions")
def complete(
    session: SignedIn, service: Service, kind: WordKind, q: Annotated[str, Query(max_length=1024)] = ""
) -> CompletionList:
    """What the editor offers while one types."""
    require(session, "GET", "/v1/completions")
    return completions.complete(service, kind, q, 50)


@router.get(LIST + "/{name}/edit")
def edit(
    request: Request,
    session: SignedIn,
    service: Service,
    name: Name,
    saved: bool = False,
    dead_letter: Annotated[str, Query(max_length=100)] = "",
    case: bool = False,
    move: Annotated[str, Query(max_length=1024)] = "",
    into: Annotated[str, Query(max_length=1024)] = "",
) -> Response:
    """The editor, with the draft if there is one, else with the version in force, else with the latest; with the record of a
    dead letter as the sample, as its reader may see it; `case` says how it becomes a test case. With `move`, operations are drafted that put `into` another path what is there."""
    require(session, "PUT", f"/v1/specs/{name}")
    with service.database.read() as reading:
        record = catalogue.get_spec(reading, name)
        base = record.latest_version
        # After a roll back the latest is what nobody wants.
        if record.document.status is SpecStatus.RETIRED and record.active_version is not None:
            base = record.active_version
        document = catalogue.get_spec_version(reading, name, base).document
    text = draft = spec_text(document, "status")
    refusal = None
    if move:
        stated = SpecDefinition(**document.model_dump(include=set(SpecDefinition.model_fields)))
        try:
            wish = api.SpecMove(definition=stated, path=move, into=into.strip())
            draft = spec_text(api.move(wish, service), "status")
        except (SpecError, ValidationError) as error:
            refusal = (
                f"Nothing was moved: {error if isinstance(error, SpecError) else 'name the other path'}."
            )
    sample = sample_of(request, session, dead_letter) if dead_letter else ""
    shown: dict[str, Any] = {
        "is_saved": saved,
        "sample": sample,
        "base": base,
        "saved": text,
        "is_case": case,
        "refusal": refusal,
        "moved": (move, into) if move and refusal is None else None,
    }
    return show_editor(request, session, record, draft, **shown)


@router.post(LIST + "/{name}/edit")
def edit_again(
    request: Request, session: SignedIn, service: Service, name: Name, fields: OwnFields
) -> Response:
    """The editor, with a draft that is not saved. By `act` the sample becomes a test case of it, or the newest event that the
    source has becomes the sample."""
    require(session, "PUT", f"/v1/specs/{name}")
    with service.database.read() as reading:
        record = catalogue.get_spec(reading, name)
    kept: dict[str, Any] = {each: fields.get(each, "") for each in ("reason", "sample", "etag")}
    if "text" not in fields:
        # The draft was saved a moment ago, from sample events.
        first = read_events(fields.get("events", ""))[:1]
        sample = json.dumps(first[0], indent=2, ensure_ascii=False) if first else ""
        kept |= {"sample": sample, "is_saved": True}
    text = fields.get("text", spec_text(record.document, "status"))
    try:
        match fields.get("act"):
            case "case":
                text, kept["made"] = _with_case(service, name, text, kept["sample"])
            case "newest":
                definition, _ = read_definition_of(name, text)
                event_type = "" if "*" in definition.event_type else definition.event_type
                kept["sample"] = newest_of(request, session, definition.source, event_type)
    except (DocumentError, SpecError, RefusedRequestError, ProfileServiceError) as error:
        return show_editor(request, session, record, text, 422, refusal=str(error), **kept)
    return show_editor(request, session, record, text, **kept)


def _with_case(service: MetadataService, name: str, text: str, sample: str) -> tuple[str, SpecCase]:
    """Raises DocumentError, SpecError, RefusedRequestError."""
    definition, _ = read_definition_of(name, text)
    payload = read_payload(sample)
    if payload is None:
        raise RefusedRequestError("a test case is made of a sample event, and there is no sample event")
    known = {each.name for each in definition.cases}
    number = next(each for each in count(len(known) + 1) if f"case {each}" not in known)
    wish = api.CaseWish(definition=definition, payload=payload, name=f"case {number}")
    made = api.new_case(wish, service)
    return spec_text(definition.model_copy(update={"cases": (*definition.cases, made)}), "status"), made


def show_editor(
    request: Request, session: SignedIn, record: SpecRecord, text: str, status: int = 200, **context: Any
) -> Response:
    """With this text, whatever is saved."""
    shown = {
        **{"sample": "", "reason": "", "refusal": None, "theirs": [], "is_saved": False, "made": None},
        **{"is_case": False, "moved": None},
        **{"base": record.latest_version, "saved": spec_text(record.document, "status")},
        **context,
    }
    shown["etag"] = shown.get("etag") or etag_of(record.model_dump_json())
    return render(
        request,
        "spec_editor.html",
        session,
        status,
        title=f"Edit {record.name}",
        record=record,
        text=text,
        may_sample=request.app.state.profile_source is not None
        and Scope.OPERATE in session.caller.caller("", None).scopes,
        may_publish=may(session, "POST", f"/v1/specs/{record.name}/status"),
        is_rail=True,
        curl=None,
        **shown,
        **_checked(None, record.name, "", "")._asdict(),
    )


class Checked(NamedTuple):
    """The draft as it is: its problems with their lines, and what it makes of the sample."""

    problems: list[Problem]
    warnings: list[Problem]
    cases: list[SpecCaseRecord]
    preview: PreviewRecord | None
    sample_problem: str | None
    is_checked: bool


@router.post(LIST + "/{name}/check")
def check(request: Request, session: SignedIn, service: Service, name: Name, fields: OwnFields) -> Response:
    """Called as one types: nothing is stored."""
    require(session, "POST", "/v1/specs/check")
    checked = _checked(service, name, fields.get("text", ""), fields.get("sample", ""))
    return render(request, "spec_result.html", session, **checked._asdict())


def _checked(service: Service | None, name: str, text: str, sample: str) -> Checked:
    if service is None:
        return Checked([], [], [], None, None, is_checked=False)
    problems: list[Problem] = []
    warnings: list[Problem] = []
    cases: list[SpecCaseRecord] = []
    preview, sample_problem = None, None
    try:
        definition, warnings = read_definition_of(name, text)
        payload = read_payload(sample)
        checked = api.check_only(definition, service)
        cases = checked.cases
        warnings += [Problem(1, 1, "", each, None) for each in checked.warnings]
        if payload is not None:
            preview = api.preview(api.SpecPreview(definition=definition, payload=payload), service)
    except DocumentError as error:
        problems, warnings = error.problems, list(error.warnings)
    except SpecError as error:
        problems = [JsonFile.of_text(text).locate(error)]
    except RefusedRequestError as error:
        sample_problem = error.message
    return Checked(problems, warnings, cases, preview, sample_problem, is_checked=True)


def read_definition_of(name: str, text: str) -> tuple[SpecDefinition, list[Problem]]:
    """What the text says. Raises DocumentError."""
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
def publish(request: Request, session: SignedIn, service: Service, name: Name, fields: OwnFields) -> Response:
    """Save a version, as a draft or in force. A conflict shows both versions, and keeps what was typed."""
    require(session, "PUT", f"/v1/specs/{name}")
    text, reason = fields.get("text", ""), fields.get("reason", "").strip()
    again = {"reason": reason, "sample": fields.get("sample", "")}
    is_draft = fields.get("act") == "draft"

    def refused(problem: str, status: int = 422, theirs: list[Row] | None = None) -> Response:
        with service.database.read() as reading:
            record = catalogue.get_spec(reading, name)
        return show_editor(
            request, session, record, text, status, refusal=problem, theirs=theirs or [], **again
        )

    if not reason:
        return refused("Say why: the reason is kept with the version, for whoever asks later.")
    try:
        definition, _ = read_definition_of(name, text)
        stated = definition.model_copy(update={"status": SpecStatus.DRAFT if is_draft else SpecStatus.ACTIVE})
        answer = api.put(
            name,
            stated,
            service,
            session.caller,
            precondition(fields.get("etag", "")),
            reason[:1000],
            "allow_failing_cases" in fields,
        )
    except DocumentError as error:
        return refused("; ".join(f"line {each.line}: {each.message}" for each in error.problems))
    except ClashError as error:
        return refused(str(error), 409)
    except SpecError as error:
        return refused(f"{error.pointer}: {error.message}")
    except PreconditionError:
        with service.database.read() as reading:
            known = catalogue.get_spec(reading, name).document
        return refused(
            f"Version {known.version} was saved while you edited. Nothing of yours is lost: take over what you need "
            "from it, then publish.",
            412,
            difference(spec_text(known, "status"), text),
        )
    if answer.status_code == 202:
        # The page of the spec says what waits for a second person.
        return see_other(f"{LIST}/{name}")
    return (
        see_other(f"{LIST}/{name}", published="true")
        if not is_draft
        else see_other(f"{LIST}/{name}/edit", saved="true")
    )
