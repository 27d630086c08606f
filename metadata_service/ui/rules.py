"""Identity Rules: those in force as a table and as JSON, a draft with its effect on all stored profiles, and all versions."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Query, Response
from pydantic import ValidationError
from sqlalchemy.orm import Session as Reading

from idgraph.model.identity_rules import DEFAULT_RULES, IdentityRules
from idgraph.web.conditional import etag_of, precondition
from idgraph.web.cursors import PageRequest
from metadata_service.api.routes.documents import put_document
from metadata_service.documents.problems import DocumentError, JsonFile, model_problems
from metadata_service.documents.writing import difference, spec_text
from metadata_service.identity_rules import RULES, find_problems
from metadata_service.specs import catalogue as specs
from metadata_service.ui.page import OwnFields, OwnPage, Polled, SignedIn, reason_of, see_other

router = APIRouter()

PAGE = "/ui/rules"
API = "/v1/identity-rules"
PREVIEWS = ("identity-rules", "previews")
SHOWN = 50
SAMPLE = 10_000
MOST_SPECS = 1000


@router.get(PAGE)
def show(
    page: SignedIn,
    begin: Annotated[int | None, Query(alias="from", ge=0, lt=2**31)] = None,
    published: bool = False,
) -> Response:
    """The rules in force, or a draft that begins with an older version; 0 are the defaults."""
    page.require("GET", API)
    text = None
    if begin is not None:
        with page.database.read() as reading:
            rules = RULES.at(reading, begin).document if begin else DEFAULT_RULES
        text = spec_text(rules)
    return _page(page, text, begin=begin, published=published)


@router.post(PAGE)
def act(page: SignedIn, fields: OwnFields) -> Response:
    """Check a draft, run its preview or look at it again, or publish, by `act`."""
    page.require("POST", f"{API}/check")
    text, job, deed = fields.get("text", ""), fields.get("job", ""), fields.get("act")
    kept: dict[str, Any] = {name: fields.get(name, "") for name in ("reason", "etag", "previewed")}
    try:
        rules = read_rules(text)
    except DocumentError as error:
        return _page(page, text, 422, problems=error.problems, **kept)
    draft = etag_of(spec_text(rules))
    if deed == "run":
        sample, stated = fields.get("sample"), rules.model_dump(mode="json", exclude_unset=True)
        body = {"rules": stated, "sample": SAMPLE if sample else None, "reason": "a draft"}
        kept |= {"found": page.preview("POST", *PREVIEWS, body=body), "previewed": draft}
        return _page(page, text, **kept)
    found = kept["found"] = page.preview("GET", *PREVIEWS, job) if job else {}
    if deed != "publish":
        return _page(page, text, is_checked=deed == "check", **kept)
    page.require("PUT", API)
    page.on_refusal(_page, text, **kept)
    reason = reason_of(fields, is_needed=True)
    is_seen = kept["previewed"] == draft and found.get("state") == "done"
    if not is_seen and not fields.get("agreed"):
        return _page(page, text, 422, asks=True, **kept)
    put_document(RULES, rules, page.service, page.caller.name, precondition(kept["etag"]), reason)
    return see_other(PAGE, published="true")


@router.get(PAGE + "/previews/{job}")
def progress(page: Polled, job: str) -> Response:
    """The progress of a preview; the page asks while it runs."""
    page.require("POST", f"{API}/check")
    return page.render("rules_found.html", found=page.preview("GET", *PREVIEWS, job))


def read_rules(text: str) -> IdentityRules:
    """The rules of a text. Raises DocumentError."""
    document = JsonFile.of_text(text)
    try:
        rules = IdentityRules.model_validate(document.content)
    except ValidationError as error:
        raise document.refuse(model_problems(error, document.content, IdentityRules)) from None
    if wrong := find_problems(rules):
        raise document.refuse(wrong)
    return rules


def _page(page: OwnPage, text: str | None, status: int = 200, etag: str = "", **context: Any) -> Response:
    with page.database.read() as reading:
        held = RULES.known(reading)
        versions = RULES.versions(reading, PageRequest(None, SHOWN)).items
        unruled = sorted(_types_in_use(reading) - held.document.namespaces.keys())
    in_force = spec_text(held.document)
    text = in_force if text is None else text
    return page.render(
        "rules.html",
        status,
        held=held,
        text=text,
        etag=etag or etag_of(RULES.served(held)),
        difference=difference(in_force, text),
        versions=versions,
        unruled=unruled,
        unnamed=held.document.namespace(""),
        sample_size=SAMPLE,
        **context,
    )


def _types_in_use(reading: Reading) -> set[str]:
    """The types of identifiers that active specs make."""
    return {
        each.type
        for record in specs.list_specs(reading, PageRequest(None, MOST_SPECS)).items
        if record.active_version is not None
        for each in specs.get_spec_version(reading, record.name, record.active_version).identifiers
    }
