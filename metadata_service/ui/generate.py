"""Generate Specs: a draft from sample events, each line with its reason."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import ValidationError

from idgraph.model import canonical
from idgraph.model.errors import SpecError
from idgraph.web.conditional import precondition
from idgraph.web.refusals import PreconditionError, RefusedRequestError
from metadata_service.api.routes import drafts, specs
from metadata_service.api.service import Service
from metadata_service.documents.problems import model_problems
from metadata_service.drafting.draft import SpecDraft
from metadata_service.storage.sessions import Session
from metadata_service.ui.page import OwnFields, SignedIn, curl, may, render, require, see_other
from metadata_service.ui.specs import LIST, read_payload

router = APIRouter()

PAGE = "/ui/generate"
CALL = "/v1/specs/generate"


@router.get(PAGE)
def ask(request: Request, session: SignedIn) -> Response:
    """The form."""
    require(session, "POST", CALL)
    return _page(request, session, {})


def _page(
    request: Request,
    session: Session,
    typed: dict[str, str],
    status: int = 200,
    problem: str | None = None,
    draft: SpecDraft | None = None,
) -> Response:
    call = curl(str(request.base_url), CALL) + " -H 'Content-Type: application/json' -d @sample.json"
    title, may_save = "Generate Specs", may(session, "PUT", f"/v1/specs/{typed.get('name') or 'new'}")
    context: dict[str, Any] = {"typed": typed, "problem": problem, "draft": draft, "may_save": may_save}
    return render(request, "generate.html", session, status, title=title, curl=call, **context)


@router.post(PAGE)
def generate(request: Request, session: SignedIn, service: Service, fields: OwnFields) -> Response:
    """Show the draft, or save it and open it in the editor. The sample is stored nowhere."""
    require(session, "POST", CALL)
    typed = {field: fields.get(field, "") for field in ("name", "source", "event_type", "events")}
    try:
        stated = typed | {"event_type": typed["event_type"] or "*", "events": _events(typed["events"])}
        sample = drafts.SampleEvents.model_validate(stated)
        draft = drafts.generate(sample, service)
        if fields.get("act") != "draft":
            return _page(request, session, typed, draft=draft)
        require(session, "PUT", f"/v1/specs/{sample.name}")
        reason = f"drafted from {len(sample.events)} sample events"
        specs.put(sample.name, draft.definition, service, session.caller, precondition(None, "*"), reason)
    except ValidationError as error:
        found = model_problems(error, stated, drafts.SampleEvents)
        problem = "; ".join(f"{each.pointer.lstrip('/')}: {each.message}" for each in found)
        return _page(request, session, typed, 422, problem)
    except (SpecError, RefusedRequestError) as error:
        return _page(request, session, typed, 422, str(error))
    except PreconditionError:
        return _page(request, session, typed, 412, "A spec has this name: give the draft another one.", draft)
    return see_other(f"{LIST}/{sample.name}/edit", saved="true")


def _events(text: str) -> list[dict[str, Any]]:
    """JSON Lines, one object, or an array of them. Raises RefusedRequestError."""
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
