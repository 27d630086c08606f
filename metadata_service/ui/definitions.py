"""Views, and Segments: the list, and one with its text, what it gives for the profiles that a person sees, and its versions."""

from __future__ import annotations

from typing import Annotated, Any, Literal, cast

from fastapi import APIRouter, Depends, Query, Request, Response
from pydantic import ValidationError

from idgraph.model import queries
from idgraph.model.errors import ProfileServiceError, SpecError, TransformError
from idgraph.model.specs import NAME_PATTERN
from idgraph.model.views import SegmentDocument, ViewDocument
from idgraph.web.conditional import etag_of, precondition
from idgraph.web.cursors import PageRequest
from idgraph.web.refusals import RefusedRequestError, UnknownSubjectError
from metadata_service.api.routes.documents import Name, put_document
from metadata_service.definitions import SEGMENTS, VIEWS
from metadata_service.documents.problems import DocumentError, JsonFile, model_problems
from metadata_service.documents.writing import difference, spec_text
from metadata_service.storage.versions import VersionedDocuments
from metadata_service.ui.page import Number, OwnFields, OwnPage, Paging, SignedIn, Text, reason_of, see_other

router = APIRouter()


def _plural(request: Request) -> str:
    return "views" if request.url.path.startswith("/ui/views") else "segments"


Plural = Annotated[str, Depends(_plural)]
SHOWN = 50
EXAMPLES = 10
ANY: dict[str, VersionedDocuments[Any, Any]] = {each.path: each for each in (VIEWS, SEGMENTS)}


@router.get("/ui/views-new")
@router.get("/ui/segments-new")
def begin(page: SignedIn, plural: Plural, name: Annotated[str, Query(pattern=NAME_PATTERN)]) -> Response:
    """A draft of a name; of one that is known, its text."""
    page.require("POST", f"/v1/{plural}/check")
    return see_other(f"/ui/{plural}/{name}", new="true")


@router.get("/ui/views")
@router.get("/ui/segments")
def list_definitions(
    page: SignedIn, plural: Plural, paging: Paging, q: Text = "", sort: Literal["name", "-name"] = "name"
) -> Response:
    """By name."""
    page.require("GET", f"/v1/{plural}")
    with page.database.read() as reading:
        found = ANY[plural].list(reading, paging, q, sort == "-name")
    return page.render("definitions.html", plural=plural, page=found, q=q, sort=sort)


@router.get("/ui/views/{name}")
@router.get("/ui/segments/{name}")
def show(
    page: SignedIn, plural: Plural, name: Name, version: Number = None, new: bool = False, saved: bool = False
) -> Response:
    """The latest version, an older one to begin with again, or with `new` a draft of a name."""
    page.require("GET", f"/v1/{plural}/{name}")
    text = None
    with page.database.read() as reading:
        if version is not None:
            text = _text(ANY[plural].at(reading, version, name).document)
        elif not new:
            ANY[plural].get(reading, name)
    return _page(page, plural, name, text, saved=saved)


@router.post("/ui/views/{name}")
@router.post("/ui/segments/{name}")
def act(page: SignedIn, plural: Plural, name: Name, fields: OwnFields) -> Response:
    """Check a draft, try it on profiles, publish it, or retire the name, by `act`."""
    page.require("POST", f"/v1/{plural}/check")
    text, deed = fields.get("text", ""), fields.get("act")
    kept: dict[str, Any] = {each: fields.get(each, "").strip() for each in ("reason", "person", "etag")}
    try:
        stated, first, kept["warnings"] = _read(page, plural, name, text)
    except DocumentError as error:
        return _page(page, plural, name, text, 422, problems=error.problems, **kept)
    if deed not in ("publish", "retire"):
        tried = _tried(page, first, kept["person"]) if deed == "try" else None
        return _page(page, plural, name, text, is_checked=True, tried=tried, **kept)
    page.require("PUT", f"/v1/{plural}/{name}")
    page.on_refusal(_page, plural, name, text, **kept)
    if deed == "retire":
        stated = stated.model_copy(update={"status": "retired"})
    # A draft of a new name has no version that it was begun from.
    known = fields.get("etag")
    check = precondition(known) if known else precondition(None, "*")
    reason = reason_of(fields, is_needed=True)
    put_document(ANY[plural], stated, page.service, page.caller.name, check, reason)
    return see_other(f"/ui/{plural}/{name}", saved="true")


def _read(page: OwnPage, plural: str, name: str, text: str) -> tuple[Any, Any, list[str]]:
    """A definition as it is stated and as it would be stored, with warnings. Raises DocumentError."""
    kind, document = ANY[plural], JsonFile.of_text(text)
    try:
        definition = kind.stated.model_validate(document.content)
    except ValidationError as error:
        raise document.refuse(model_problems(error, document.content, kind.stated)) from None
    if definition.name != name:
        raise document.refuse([SpecError(f"this page edits {name}; another name is another one", "/name")])
    try:
        with page.database.read() as reading:
            first = kind.check(reading, definition)
            return definition, first, kind.warn(reading, first)
    except SpecError as error:
        raise document.refuse([error]) from None
    except RefusedRequestError as error:
        raise document.refuse([SpecError(error.message, error.pointer, error.hint)]) from None


def _text(document: ViewDocument | SegmentDocument) -> str:
    # The meaning of `q` at its saving stands beside it.
    return spec_text(document, "query") if getattr(document, "q", None) is not None else spec_text(document)


def _tried(page: OwnPage, draft: ViewDocument | SegmentDocument, person: str) -> dict[str, Any]:
    """The result of a draft for the profiles that the person sees: `attributes` of one, or `number` and some
    `members`."""
    from transforms import compile_spec

    try:
        with page.profiles() as client:
            if isinstance(draft, SegmentDocument):
                asked = queries.to_json(draft.segment().condition)
                found = client.call("POST", "search", body={"query": asked, "limit": EXAMPLES})
                return {"number": client.count(asked), "members": [each["id"] for each in found["items"]]}
            profile = client.lookup(person)
        if profile is None:
            return {"problem": "you see no profile of this identifier"}
        shape = compile_spec({"operation": "jmespath", "spec": draft.attributes})
        return {"attributes": shape(cast(Any, profile)["attributes"]) or {}}
    except TransformError as error:
        return {"problem": error.message}
    except ProfileServiceError as error:
        return {"problem": str(error)}


def _page(
    page: OwnPage, plural: str, name: str, text: str | None, status: int = 200, **context: Any
) -> Response:
    """With this text; else with what is stored, or with the beginning of a new one."""
    with page.database.read() as reading:
        try:
            known = ANY[plural].get(reading, name)
            versions = ANY[plural].versions(reading, PageRequest(None, SHOWN), name).items
        except UnknownSubjectError:
            known, versions = None, []
    in_force = None if known is None else _text(known)
    text = in_force if text is None else text
    return page.render(
        "definition.html",
        status,
        plural=plural,
        name=name,
        known=known,
        text=text,
        difference=difference(in_force, text or "") if in_force is not None else [],
        versions=versions,
        **{"etag": "" if known is None else etag_of(known.model_dump_json())} | context,
    )
