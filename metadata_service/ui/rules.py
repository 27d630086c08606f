"""Identity Rules: those in force as a table and as JSON, a draft with its effect on all stored profiles, and all versions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from pydantic import ValidationError

from idgraph.model.errors import ProfileServiceError
from idgraph.model.identity_rules import DEFAULT_RULES, IdentityRules
from idgraph.web.conditional import etag_of, precondition
from idgraph.web.cursors import PageRequest
from idgraph.web.refusals import PreconditionError
from metadata_service import identity_rules as catalogue
from metadata_service.api.routes import identity_rules as api
from metadata_service.api.service import MetadataService, Service
from metadata_service.documents.problems import DocumentError, JsonFile, model_problems
from metadata_service.documents.writing import difference, spec_text
from metadata_service.storage.sessions import Session
from metadata_service.ui.page import OwnFields, Polled, SignedIn, curl, may, render, require, see_other
from metadata_service.ui.profiles import profiles_client

router = APIRouter()

PAGE = "/ui/rules"
API = "/v1/identity-rules"
SHOWN = 50
START_SECONDS = 60.0
SAMPLE = 10_000
Version = Annotated[int | None, Query(ge=0, lt=2**31)]


@router.get(PAGE)
def show(
    request: Request,
    session: SignedIn,
    service: Service,
    begin: Annotated[int | None, Query(alias="from", ge=0, lt=2**31)] = None,
    published: bool = False,
) -> Response:
    """The rules in force, or a draft that begins with an older version; 0 are the defaults."""
    require(session, "GET", API)
    with service.database.read() as reading:
        if begin is None:
            rules = catalogue.newest_rules(reading).document
        else:
            rules = catalogue.rules_version(reading, begin).document if begin else DEFAULT_RULES
    reason = "" if begin is None else f"back to version {begin}" if begin else "back to the defaults"
    return _page(request, session, service, spec_text(rules), reason=reason, published=published)


@router.post(PAGE)
def act(request: Request, session: SignedIn, service: Service, fields: OwnFields) -> Response:
    """Check a draft, run its preview or look at it again, or publish, by `act`."""
    require(session, "POST", f"{API}/check")
    text, job = fields.get("text", ""), fields.get("job", "")
    kept: dict[str, Any] = {name: fields.get(name, "") for name in ("reason", "etag", "previewed")}
    try:
        rules = read_rules(text)
    except DocumentError as error:
        return _page(request, session, service, text, 422, problems=error.problems, **kept)
    draft = etag_of(spec_text(rules))
    if fields.get("act") in ("run", "look"):
        found = _preview(request, session, rules if fields["act"] == "run" else None, job, fields)
        kept["previewed"] = draft if fields["act"] == "run" else kept["previewed"]
        return _page(request, session, service, text, found=found, **kept)
    if fields.get("act") != "publish":
        return _page(request, session, service, text, is_checked=True, **kept)
    require(session, "PUT", API)
    found = _preview(request, session, None, job, fields) if job else {}
    kept["found"] = found
    is_seen = kept["previewed"] == draft and found.get("state") == "done"
    if not kept["reason"].strip():
        return _page(request, session, service, text, 422, refusal="Say why: the reason is kept.", **kept)
    if not is_seen and not fields.get("agreed"):
        refusal = (
            "Nobody has seen what these rules do. Preview the effect first, or agree that it is not known."
        )
        return _page(request, session, service, text, 422, refusal=refusal, asks=True, **kept)
    try:
        api.put(
            rules, service, session.caller.name, precondition(kept["etag"]), kept["reason"].strip()[:1000]
        )
    except PreconditionError:
        refusal = "Somebody published meanwhile. Nothing of yours is lost: the difference below is to their version."
        return _page(request, session, service, text, 412, refusal=refusal, **(kept | {"etag": ""}))
    return see_other(PAGE, published="true")


@router.get(PAGE + "/previews/{job}")
def progress(request: Request, session: Polled, job: str) -> Response:
    """How far a preview is; asked while it runs."""
    require(session, "POST", f"{API}/check")
    return render(
        request, "rules_found.html", session, found=_NOTHING | _preview(request, session, None, job, {})
    )


def read_rules(text: str) -> IdentityRules:
    """What a text says. Raises DocumentError."""
    document = JsonFile.of_text(text)
    try:
        rules = IdentityRules.model_validate(document.content)
    except ValidationError as error:
        raise document.refuse(model_problems(error, document.content, IdentityRules)) from None
    if wrong := catalogue.find_problems(rules):
        raise document.refuse(wrong)
    return rules


_NOTHING = dict.fromkeys(("id", "state", "done", "total", "result", "problem"))


def _preview(
    request: Request, session: Session, rules: IdentityRules | None, job: str, fields: dict[str, str]
) -> dict[str, Any]:
    """A preview that is started, or how far one is; with `problem` where there is none."""
    try:
        with profiles_client(request, session, START_SECONDS) as client:
            if rules is None:
                return dict(client.call("GET", "identity-rules", "previews", job))
            sample = SAMPLE if fields.get("sample") else None
            body = {"rules": rules.model_dump(mode="json", exclude_unset=True), "sample": sample}
            return dict(client.call("POST", "identity-rules", "previews", body=body | {"reason": "a draft"}))
    except ProfileServiceError as error:
        return {"problem": str(error)}


def _page(
    request: Request, session: Session, service: MetadataService, text: str, status: int = 200, **context: Any
) -> Response:
    with service.database.read() as reading:
        record = catalogue.newest_rules(reading)
        versions = catalogue.rules_versions(reading, PageRequest(None, SHOWN)).items
    in_force = spec_text(record.document)
    shown: dict[str, Any] = {"is_checked": False, "refusal": "", "asks": False, "published": False}
    shown |= {"problems": [], "reason": "", "previewed": "", "found": {}} | context
    return render(
        request,
        "rules.html",
        session,
        status,
        title="Identity Rules",
        record=record,
        rules=record.document,
        text=text,
        difference=difference(in_force, text) if text != in_force else [],
        versions=versions,
        sample_size=SAMPLE,
        may_draft=may(session, "POST", f"{API}/check"),
        may_publish=may(session, "PUT", API),
        curl=curl(str(request.base_url), API),
        **shown | {"found": _NOTHING | shown["found"], "etag": shown.get("etag") or etag_of(record.stated)},
    )
