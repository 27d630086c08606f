"""Views, and Segments: the list, and one with its text, what it gives for the profiles that a person sees, and its versions."""

from __future__ import annotations

from typing import Annotated, Any, Literal, NamedTuple, cast

from fastapi import APIRouter, Depends, Path, Query, Request, Response
from pydantic import ValidationError

from idgraph.client import ProfilesClient
from idgraph.model import queries
from idgraph.model.errors import ProfileServiceError, SpecError, TransformError
from idgraph.model.specs import NAME_PATTERN
from idgraph.model.views import SegmentDocument, ViewDocument
from idgraph.web.conditional import etag_of, precondition
from idgraph.web.cursors import PageRequest
from idgraph.web.refusals import PreconditionError, RefusedRequestError, UnknownSubjectError
from metadata_service.api.service import MetadataService, Service
from metadata_service.definitions import SEGMENTS, VIEWS, Definitions
from metadata_service.documents.problems import DocumentError, JsonFile, model_problems
from metadata_service.documents.writing import difference, spec_text
from metadata_service.storage.sessions import Session
from metadata_service.ui.page import OwnFields, SignedIn, curl, may, render, require, see_other
from metadata_service.ui.profiles import profiles_client

router = APIRouter()


def _plural(request: Request) -> str:
    return "views" if request.url.path.startswith("/ui/views") else "segments"


Plural = Annotated[str, Depends(_plural)]
Name = Annotated[str, Path(pattern=NAME_PATTERN)]
SHOWN = 50
EXAMPLES = 10
BEGINNINGS = {
    "views": '{\n  "name": "%s",\n  "description": "",\n  "attributes": {\n    "last": "activity.lastEvent"\n  }\n}',
    "segments": '{\n  "name": "%s",\n  "description": "",\n  "q": "activity.lastEvent=*"\n}',
}
ANY: dict[str, Definitions[Any, Any]] = {"views": VIEWS, "segments": SEGMENTS}


@router.get("/ui/views-new")
@router.get("/ui/segments-new")
def begin(session: SignedIn, plural: Plural, name: Annotated[str, Query(pattern=NAME_PATTERN)]) -> Response:
    """A draft of a name; of one that is known, its text."""
    require(session, "POST", f"/v1/{plural}/check")
    return see_other(f"/ui/{plural}/{name}", new="true")


@router.get("/ui/views")
@router.get("/ui/segments")
def list_definitions(
    request: Request,
    session: SignedIn,
    service: Service,
    plural: Plural,
    q: Annotated[str, Query(max_length=200)] = "",
    sort: Literal["name", "-name"] = "name",
    cursor: Annotated[str | None, Query(max_length=10_000)] = None,
    limit: Annotated[int, Query(ge=1, le=200)] = SHOWN,
) -> Response:
    """By name."""
    require(session, "GET", f"/v1/{plural}")
    with service.database.read() as reading:
        page = ANY[plural].list(reading, PageRequest(cursor, limit), q, sort == "-name")
    return render(
        request,
        "definitions.html",
        session,
        title=plural.capitalize(),
        plural=plural,
        page=page,
        q=q,
        sort=sort,
        may_draft=may(session, "POST", f"/v1/{plural}/check"),
        curl=curl(str(request.base_url), f"/v1/{plural}", **dict(request.query_params.items())),
    )


@router.get("/ui/views/{name}")
@router.get("/ui/segments/{name}")
def show(
    request: Request,
    session: SignedIn,
    service: Service,
    plural: Plural,
    name: Name,
    version: Annotated[int | None, Query(ge=1, lt=2**31)] = None,
    new: bool = False,
    saved: bool = False,
) -> Response:
    """The latest version, an older one to begin with again, or with `new` a draft of a name."""
    require(session, "GET", f"/v1/{plural}/{name}")
    text = None
    if version is not None:
        with service.database.read() as reading:
            older = ANY[plural].versions(reading, name, PageRequest(None, 1000)).items
        documents = [cast(Any, each).document for each in older]
        text = next((_text(each) for each in documents if each.version == version), None)
        if text is None:
            raise UnknownSubjectError(f"{name} has no version {version}")
    beginning = BEGINNINGS[plural] % name if new else None
    return _page(request, session, service, plural, name, text, beginning=beginning, saved=saved)


@router.post("/ui/views/{name}")
@router.post("/ui/segments/{name}")
def act(
    request: Request, session: SignedIn, service: Service, plural: Plural, name: Name, fields: OwnFields
) -> Response:
    """Check a draft, try it on profiles, publish it, or retire the name, by `act`."""
    require(session, "POST", f"/v1/{plural}/check")
    text, reason, deed = fields.get("text", ""), fields.get("reason", "").strip(), fields.get("act")
    kept: dict[str, Any] = {"reason": reason, "person": fields.get("person", "").strip()}

    def page(status: int = 200, **context: Any) -> Response:
        return _page(request, session, service, plural, name, text, status, **kept | context)

    document = JsonFile.of_text(text)
    try:
        first, warnings = _read(service, plural, name, document)
    except DocumentError as error:
        return page(422, problems=error.problems)
    if deed == "try":
        tried = _tried(request, session, first, kept["person"])
        return page(warnings=warnings, is_checked=True, tried=tried)
    if deed not in ("publish", "retire"):
        return page(warnings=warnings, is_checked=True)
    require(session, "PUT", f"/v1/{plural}/{name}")
    if not reason:
        return page(422, refusal="Say why: the reason is kept with the version, for whoever asks later.")
    if deed == "retire":
        first = first.model_copy(update={"status": "retired"})
    try:
        with service.database.write(session.caller.name, reason[:1000]) as edit:
            # A draft of a new name has no version that it was begun from.
            known = fields.get("etag")
            ANY[plural].save(edit, first, precondition(known) if known else precondition(None, "*"))
    except PreconditionError:
        return page(
            412,
            refusal="Somebody saved meanwhile. Nothing of yours is lost: the difference is to their version.",
        )
    return see_other(f"/ui/{plural}/{name}", saved="true")


def _read(service: MetadataService, plural: str, name: str, document: JsonFile) -> tuple[Any, list[str]]:
    """A definition as it would be stored, with warnings. Raises DocumentError."""
    kind = ANY[plural]
    try:
        definition = kind.stated.model_validate(document.content)
    except ValidationError as error:
        raise document.refuse(model_problems(error, document.content, kind.stated)) from None
    if definition.name != name:
        raise document.refuse([SpecError(f"this page edits {name}; another name is another one", "/name")])
    try:
        with service.database.read() as reading:
            first = kind.checked(reading, definition)
            return first, kind.warnings(reading, first)
    except SpecError as error:
        raise document.refuse([error]) from None
    except RefusedRequestError as error:
        raise document.refuse([SpecError(error.message, error.pointer, error.hint)]) from None


def _text(document: ViewDocument | SegmentDocument) -> str:
    # What `q` meant when it was saved stands beside it.
    return spec_text(document, "query") if getattr(document, "q", None) is not None else spec_text(document)


class Tried(NamedTuple):
    """What a draft gives for the profiles that a person sees."""

    attributes: dict[str, Any] | None = None
    number: int | None = None
    members: list[str] | None = None
    problem: str = ""


def _tried(request: Request, session: Session, draft: ViewDocument | SegmentDocument, person: str) -> Tried:
    """By the profile service, with the person's own token."""
    try:
        with profiles_client(request, session) as client:
            return (
                _viewed(client, draft, person) if isinstance(draft, ViewDocument) else _members(client, draft)
            )
    except ProfileServiceError as error:
        return Tried(problem=str(error))


def _viewed(client: ProfilesClient, view: ViewDocument, person: str) -> Tried:
    from transforms import compile_spec

    found = client.lookup(person)
    if found is None:
        return Tried(problem="you see no profile of this identifier")
    try:
        shape = compile_spec({"operation": "jmespath", "spec": view.attributes})
        return Tried(attributes=shape(cast(Any, found)["attributes"]) or {})
    except TransformError as error:
        return Tried(problem=error.message)


def _members(client: ProfilesClient, segment: SegmentDocument) -> Tried:
    asked = queries.to_json(segment.segment().condition)
    found = client.call("POST", "search", body={"query": asked, "limit": EXAMPLES})
    return Tried(number=client.count(asked), members=[each["id"] for each in found["items"]])


def _page(
    request: Request,
    session: Session,
    service: MetadataService,
    plural: str,
    name: str,
    text: str | None,
    status: int = 200,
    beginning: str | None = None,
    **context: Any,
) -> Response:
    with service.database.read() as reading:
        try:
            known = ANY[plural].get(reading, name)
            versions = ANY[plural].versions(reading, name, PageRequest(None, SHOWN)).items
        except UnknownSubjectError:
            text = beginning if text is None else text
            if text is None:
                raise
            known, versions = None, []
    in_force = "" if known is None else _text(known)
    text = in_force if text is None else text
    shown: dict[str, Any] = {
        "problems": [],
        "warnings": [],
        "is_checked": False,
        "tried": None,
        "refusal": "",
    }
    return render(
        request,
        "definition.html",
        session,
        status,
        title=name,
        plural=plural,
        name=name,
        known=known,
        text=text,
        etag="" if known is None else etag_of(known.model_dump_json()),
        difference=difference(in_force, text) if known is not None and text != in_force else [],
        versions=versions,
        may_draft=may(session, "POST", f"/v1/{plural}/check"),
        may_publish=may(session, "PUT", f"/v1/{plural}/{name}"),
        curl=curl(str(request.base_url), f"/v1/{plural}/{name}"),
        **shown | {"reason": "", "person": "", "saved": False} | context,
    )
