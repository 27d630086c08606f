"""Versioned documents: the same routes for each kind of `metadata_service.kinds`. And the log of all
changes."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, Path, Query, Response
from pydantic import BaseModel, Field, create_model

from idgraph.model import canonical
from idgraph.model.documents import NAME_PATTERN
from idgraph.model.records import (
    ChangeRecord,
    CheckRecord,
    VerificationRecord,
)
from idgraph.web.conditional import Check, IfNoneMatch, Precondition, created, json_answer
from idgraph.web.cursors import ListPage
from idgraph.web.refusals import RefusedRequestError
from metadata_service.api.routes.requests import ASKED, asked
from metadata_service.api.service import Actor, MetadataService, Paging, Reason, Service
from metadata_service.attributes.lineage import warnings_of
from metadata_service.attributes.policy_changes import request_change
from metadata_service.kinds import DOCUMENTS
from metadata_service.storage.edits import Action, Kind
from metadata_service.storage.history import verify_history
from metadata_service.storage.versions import Stated, Stored, VersionedDocuments, list_changes, name_of

Name = Annotated[str, Path(pattern=NAME_PATTERN)]
Version = Annotated[int, Path(ge=1, lt=2**31)]


class Warned(BaseModel):
    """The answer to an edit."""

    warnings: list[str] | None = Field(
        default=None, description="Warnings of a search for it; absent without any."
    )


async def _nameless() -> str:
    return ""


def routes_of(kind: VersionedDocuments[Stated, Stored]) -> APIRouter:
    """The routes of a kind."""
    router = APIRouter(prefix=f"/v1/{kind.path}", tags=[kind.path.replace("-", " ")])
    is_named = kind.default is None
    place = "/{name}" if is_named else ""
    served = kind.record or kind.stored
    saved = create_model(f"Saved{kind.stored.__name__}", __base__=(Warned, served)) if is_named else served

    def list_(
        service: Service,
        paging: Paging,
        q: Annotated[str, Query(max_length=200, description="Words in the name.")] = "",
        sort: Literal["name", "-name"] = "name",
    ) -> Any:
        """The latest versions, by name."""
        with service.database.read() as session:
            return kind.list(session, paging, q, sort == "-name")

    def get(name: str, service: Service, if_none_match: IfNoneMatch = None) -> Response:
        """The version that holds."""
        with service.database.read() as session:
            held = kind.known(session, name)
        return json_answer(kind.served(held), if_none_match)

    def list_versions(name: str, service: Service, paging: Paging) -> Any:
        """All versions that were saved, with who, when and why; the newest first."""
        with service.database.read() as session:
            return kind.versions(session, paging, name)

    def get_version(name: str, version: Version, service: Service) -> Any:
        """One version."""
        with service.database.read() as session:
            return kind.at(session, version, name)

    def put(
        name: str,
        stated: Stated,
        service: Service,
        actor: Actor,
        precondition: Precondition,
        reason: Reason = "",
    ) -> Response:
        """Store a new version, in force at once; one with status `retired` is out of use. The same again
        makes none. One that weakens protection is kept until a second person approves it, and answered with
        202."""
        if name != name_of(stated):
            raise RefusedRequestError("the name is not the one in the URL", "/name")
        return put_document(kind, stated, service, actor, precondition, reason)

    def check(stated: Stated, service: Service) -> CheckRecord:
        """Would this document be accepted? Nothing is stored."""
        with service.database.read() as session:
            return CheckRecord(warnings=warnings_of(session, kind, kind.check(session, stated)))

    for each in (get, list_versions, get_version, put, check):
        named = Name if is_named else Annotated[str, Depends(_nameless)]
        each.__annotations__ |= {"name": named, "stated": kind.stated}
    page: Any = ListPage
    if is_named:
        router.get("", response_model=page[kind.stored])(list_)
    router.post("/check")(check)
    router.get(place, response_model=served)(get)
    router.put(place, response_model=saved, responses=ASKED | (created(saved) if is_named else {}))(put)
    one: dict[str, Any] = {"response_model": kind.version, "response_model_exclude_unset": kind.as_stated}
    router.get(f"{place}/versions", **one | {"response_model": page[kind.version]})(list_versions)
    router.get(f"{place}/versions/{{version}}", **one)(get_version)
    return router


def put_document(
    kind: VersionedDocuments[Stated, Any],
    stated: Stated,
    service: MetadataService,
    actor: str,
    precondition: Check,
    reason: str,
) -> Response:
    """Save a document as `PUT` does. Gives it as it is served, with the warnings of `check`, if there are
    any."""
    with service.database.read() as session:
        document = kind.check(session, stated)
        warnings = warnings_of(session, kind, document)
    with service.database.write(actor, reason) as edit:
        name = name_of(document)
        known = kind.held(edit.session, name)
        precondition(None if known is None else kind.served(known))
        if weakens := kind.opens(edit.session, document):
            before = None if known is None else known.document
            return asked(request_change(edit, kind.kind, name, before, document, weakens))
        held, is_new = kind.save(edit, document)
    answer = json_answer(kind.served(held), status=201 if is_new else 200)
    if warnings:
        # The ETag is that of the document, as `GET` has it.
        answer.body = canonical.encode(canonical.decode(answer.body) | {"warnings": warnings})
        answer.headers["Content-Length"] = str(len(answer.body))
    return answer


log = APIRouter(prefix="/v1/changes", tags=["changes"])


@log.get("")
def list_log(
    service: Service,
    paging: Paging,
    kind: Kind | None = None,
    subject: Annotated[str | None, Query(max_length=1024, description="Spec name or attribute path.")] = None,
    actor: Annotated[str | None, Query(max_length=200, description="The caller who made it.")] = None,
    action: Annotated[list[Action] | None, Query()] = None,
) -> ListPage[ChangeRecord]:
    """List changes with author, time and reason; the newest first."""
    with service.database.read() as session:
        return list_changes(session, paging, kind, subject, actor, action or ())


@log.post("/verify")
def verify(service: Service) -> VerificationRecord:
    """Check that nothing in the history was altered, inserted or removed. It reads all of it."""
    key = service.settings.key.history if service.settings.key else b""
    with service.database.read() as session:
        report = verify_history(session, key)
    return VerificationRecord(versions=report.entries, broken_version=report.broken_line, head=report.head)


ROUTERS = (log, *map(routes_of, DOCUMENTS.values()))
